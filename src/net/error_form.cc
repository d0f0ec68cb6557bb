#include "net/error_form.h"

#include "base/json_writer.h"

namespace pelton::net {

ErrorForm error_form_of(std::string_view target) {
  return target.starts_with("/api/") ? ErrorForm::kText : ErrorForm::kObject;
}

HttpResponse error_response(const HttpReject& reject, ErrorForm form) {
  HttpResponse response = error_response(reject);
  if (form == ErrorForm::kObject) return response;
  response.body.clear();
  base::JsonWriter(response.body).begin_object().key("error").string(reject.message).end_object();
  return response;
}

}  // namespace pelton::net
