#include "cuda/form_cache.h"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "cuda/step_arrays.h"

namespace pelton::cuda {
namespace {

constexpr int64_t kFormat = 2;  // 2: with `persistent`
constexpr size_t kNameCharsMax = 48;
constexpr size_t kDigestChars = 12;  // in a file's name; what it is for stands in the file

// A driver's words, as text that a file and its name can hold.
std::string plain(std::string_view text, std::string_view allowed) {
  std::string out;
  for (const char c : text) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is_digit = c >= '0' && c <= '9';
    out += is_letter || is_digit || allowed.find(c) != std::string_view::npos ? c : '_';
  }
  return out;
}

Json key_json(const FormKey& key) {
  Json json;
  json.set("gpu", key.gpu);
  json.set("compute", key.compute);
  json.set("driver", key.driver);
  json.set("runtime", key.runtime);
  json.set("library", key.library);
  json.set("model", key.model);
  return json;
}

Error bad(std::string what) {
  return Error{ErrorCode::kInvalidArgument, std::move(what)};
}

Result<void> read_row(const Json* names, ProductKind kind, ProductForms& forms) {
  const std::string_view product = product_name(kind);
  if (names == nullptr || !names->is_array() || names->as_array().size() != kRowBucketCount) {
    return bad(fmt::format("not {} forms for {}", kRowBucketCount, product));
  }
  for (size_t bucket = 0; bucket < kRowBucketCount; ++bucket) {
    const Json& name = names->as_array()[bucket];
    const ProductForm form = name.is_string() ? read_form(name.as_string()) : ProductForm{};
    if (form.columns == 0) return bad(fmt::format("a form for {} that there is not", product));
    forms.form[static_cast<int>(kind)][bucket] = form;
  }
  return {};
}

Result<void> read_persistent(const Json* list, ProductForms& forms) {
  if (list == nullptr || !list->is_array() || list->as_array().size() != kPersistentBuckets) {
    return bad("no list of the steps that are persistent");
  }
  for (size_t bucket = 0; bucket < kPersistentBuckets; ++bucket) {
    const Json& value = list->as_array()[bucket];
    if (!value.is_integer() || value.as_integer() < 0 || value.as_integer() > 1) {
      return bad("steps that are neither persistent nor launched");
    }
    forms.persistent[bucket] = static_cast<int32_t>(value.as_integer());
  }
  return {};
}

}  // namespace

FormKey form_key(const DeviceInfo& info, const std::string& library, const ModelShape& shape,
                 const Limits& limits) {
  const auto bucket = [](int rows) { return row_bucket(rounded_up(rows)); };
  return {
      .gpu = plain(info.name, " .-()"),
      .compute = fmt::format("{}.{}", info.compute_major, info.compute_minor),
      .driver = info.driver_version,
      .runtime = info.runtime_version,
      .library = library,
      .model = fmt::format("{} layers, {} hidden, {} inner, {}/{} heads of {}, {} of {} experts, "
                           "{} tokens; buckets of rows {}, of logits {}",
                           shape.layers, shape.hidden, shape.inner, shape.heads, shape.kv_heads,
                           shape.head_size, shape.choices, shape.experts, shape.vocab,
                           bucket(limits.rows_max), bucket(limits.logit_rows_max))};
}

std::string forms_text(const FormKey& key, const ProductForms& forms) {
  Json of_products;
  for (const ProductKind kind : kAllProducts) {
    Json::Array names;
    for (const ProductForm& form : forms.form[static_cast<int>(kind)]) {
      names.emplace_back(form_name(form));
    }
    of_products.set(product_name(kind), std::move(names));
  }
  Json json;
  json.set("format", kFormat);
  json.set("for", key_json(key));
  json.set("forms", std::move(of_products));
  Json::Array persistent;
  for (const int32_t is_persistent : forms.persistent) {
    persistent.emplace_back(int64_t{is_persistent});
  }
  json.set("persistent", std::move(persistent));
  return json.dump() + "\n";
}

Result<ProductForms> parse_forms(std::string_view text, const FormKey& key, const ModelShape& shape,
                                 const FormDevice& device) {
  if (text.size() > kFormFileBytesMax) return bad("longer than any table of forms");
  TRY_ASSIGN(const Json json, Json::parse(text));
  if (!json.is_object() || json.as_object().size() != 4 || json.integer("format") != kFormat) {
    return bad("no table of forms, or of another version");
  }
  const Json* const of = json.find("for");
  if (of == nullptr || !(*of == key_json(key))) {
    return bad("measured for another GPU, driver, library or model");
  }
  const Json* const rows = json.find("forms");
  if (rows == nullptr || !rows->is_object() || rows->as_object().size() != kProductKinds) {
    return bad("not a list of forms for each product");
  }
  ProductForms forms;
  for (const ProductKind kind : kAllProducts) {
    TRY(read_row(rows->find(product_name(kind)), kind, forms));
  }
  TRY(read_persistent(json.find("persistent"), forms));
  if (!are_usable(shape, forms, device)) {
    return bad("a form that this device cannot take");
  }
  return forms;
}

std::string form_file(const std::string& folder, const FormKey& key) {
  const std::string digest = base::sha256(key_json(key).dump());
  return fmt::format("{}/{}-{}.json", folder, plain(key.gpu, ".-").substr(0, kNameCharsMax),
                     digest.substr(0, kDigestChars));
}

Result<ProductForms> read_forms(const std::string& file, const FormKey& key,
                                const ModelShape& shape, const FormDevice& device) {
  TRY_ASSIGN(const std::string text, base::read_file(file, kFormFileBytesMax));
  Result<ProductForms> forms = parse_forms(text, key, shape, device);
  if (!forms.ok()) {
    return Error{forms.error().code, fmt::format("{}: {}", file, forms.error().message)};
  }
  return forms;
}

Result<void> write_forms(const std::string& file, const FormKey& key, const ProductForms& forms) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    return Error{ErrorCode::kIo,
                 fmt::format("{}: cannot make it: {}", folder.string(), failed.message())};
  }
  return base::write_file(file, forms_text(key, forms));
}

}  // namespace pelton::cuda
