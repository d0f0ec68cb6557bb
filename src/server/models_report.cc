#include "server/models_report.h"

#include "base/json_writer.h"

namespace pelton::server {

std::string models_report(const ModelCatalogue& catalogue) {
  std::string out;
  base::JsonWriter json(out);
  json.begin_object().key("models").begin_array();
  for (const ModelCatalogue::Entry& entry : *catalogue.table()) {
    json.begin_object().key("name").string(entry.names.id).key("aliases").begin_array();
    for (const std::string& alias : entry.names.aliases) json.string(alias);
    json.end_array();
    json.key("state").string(ModelCatalogue::state_name(entry.state)).key("error");
    if (entry.error) {
      json.string(entry.error->message);
    } else {
      json.null();
    }
    json.end_object();
  }
  json.end_array().end_object();
  return out;
}

}  // namespace pelton::server
