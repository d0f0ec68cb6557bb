// For tests: a certificate authority of the moment, and what it vouches for, as PEM files in a
// folder that goes with it.
#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

#include "base/check.h"

namespace pelton::net {

class TestCertificates {
 public:
  struct Pair {
    std::string certificate;  // files
    std::string key;
  };

  TestCertificates() {
    char name[] = "/tmp/pelton_certificates.XXXXXX";
    CHECK(::mkdtemp(name) != nullptr);
    folder_ = name;
    ca_key_.reset(EVP_EC_gen("P-256"));
    ca_ = make("A test's authority", *ca_key_, "", "critical,CA:TRUE");
    write(ca_file(), *ca_);
  }
  ~TestCertificates() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TestCertificates(const TestCertificates&) = delete;
  TestCertificates& operator=(const TestCertificates&) = delete;

  std::string ca_file() const { return folder_ + "/ca.pem"; }
  const std::string& folder() const { return folder_; }

  // "DNS:localhost,IP:127.0.0.1"; files NAME.pem and NAME.key. Again with the same name: anew.
  Pair issue(const std::string& name, const std::string& alternatives) {
    const Key key(EVP_EC_gen("P-256"));
    const Pair pair{folder_ + "/" + name + ".pem", folder_ + "/" + name + ".key"};
    write(pair.certificate, *make(name, *key, alternatives, "critical,CA:FALSE"));
    std::FILE* file = std::fopen(pair.key.c_str(), "w");
    CHECK(file != nullptr);
    CHECK(PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1);
    std::fclose(file);
    return pair;
  }
  Pair issue_server() { return issue("server", "DNS:localhost,IP:127.0.0.1"); }

 private:
  struct Free {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(X509* certificate) const { X509_free(certificate); }
  };
  using Key = std::unique_ptr<EVP_PKEY, Free>;
  using Certificate = std::unique_ptr<X509, Free>;

  static void write(const std::string& name, X509& certificate) {
    std::FILE* file = std::fopen(name.c_str(), "w");
    CHECK(file != nullptr);
    CHECK(PEM_write_X509(file, &certificate) == 1);
    std::fclose(file);
  }

  // Signed by the authority; by itself while there is none.
  Certificate make(const std::string& name, EVP_PKEY& key, const std::string& alternatives,
                   const std::string& constraints) {
    Certificate made(X509_new());
    X509* const certificate = made.get();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, &key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509* const issuer = ca_ != nullptr ? ca_.get() : certificate;
    X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
    const auto extend = [&](int kind, const std::string& text) {
      if (text.empty()) return;
      X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, text.c_str());
      CHECK(extension != nullptr);
      X509_add_ext(certificate, extension, -1);
      X509_EXTENSION_free(extension);
    };
    extend(NID_basic_constraints, constraints);
    extend(NID_subject_key_identifier, "hash");
    extend(NID_subject_alt_name, alternatives);
    CHECK(X509_sign(certificate, ca_key_.get(), EVP_sha256()) > 0);
    return made;
  }

  std::string folder_;
  long serial_ = 0;
  Key ca_key_;
  Certificate ca_;
};

}  // namespace pelton::net
