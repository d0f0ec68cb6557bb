#include "api/model_list.h"

#include "base/json_writer.h"

namespace pelton::api {
namespace {

void write_model(base::JsonWriter& writer, const ModelCard& model) {
  writer.begin_object();
  writer.key("id").string(model.id);
  writer.key("object").string("model");
  writer.key("created").integer(model.created);
  writer.key("owned_by").string("pelton");
  writer.key("root").string(model.root);
  writer.key("parent");
  if (model.parent.empty()) {
    writer.null();
  } else {
    writer.string(model.parent);
  }
  // Load generators read the context's length here.
  writer.key("max_model_len").integer(model.context_max);
  if (model.asleep) writer.key("asleep").boolean(true);
  if (model.cold_start_s) writer.key("cold_start_seconds").number(*model.cold_start_s);
  if (!model.state.empty()) writer.key("state").string(model.state);
  if (model.eta_s) writer.key("eta_s").number(*model.eta_s);
  writer.end_object();
}

}  // namespace

std::string model_list_body(std::span<const ModelCard> models) {
  std::string body;
  base::JsonWriter writer(body);
  writer.begin_object().key("object").string("list").key("data").begin_array();
  for (const ModelCard& model : models) write_model(writer, model);
  writer.end_array().end_object();
  return body;
}

std::string model_body(const ModelCard& model) {
  std::string body;
  base::JsonWriter writer(body);
  write_model(writer, model);
  return body;
}

std::string model_card_body(const ModelCard& model, const ModelDescription& description) {
  std::string body;
  base::JsonWriter writer(body);
  const auto text_or_null = [&](std::string_view key, const std::string& text) {
    writer.key(key);
    if (text.empty()) {
      writer.null();
    } else {
      writer.string(text);
    }
  };
  writer.begin_object();
  writer.key("id").string(model.id);
  writer.key("object").string("model.card");
  writer.key("root").string(model.root);
  writer.key("max_model_len").integer(model.context_max);
  writer.key("license").begin_object();
  text_or_null("id", description.license);
  text_or_null("name", description.license_name);
  text_or_null("link", description.license_link);
  text_or_null("text", description.license_text);
  writer.end_object();
  text_or_null("card", description.text);
  writer.end_object();
  return body;
}

}  // namespace pelton::api
