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
  writer.key("parent").null();
  // Load generators read the context's length here.
  writer.key("max_model_len").integer(model.context_max);
  if (model.asleep) writer.key("asleep").boolean(true);
  if (model.cold_start_s) writer.key("cold_start_seconds").number(*model.cold_start_s);
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

}  // namespace pelton::api
