#include "server/models_report.h"

#include "base/json_writer.h"
#include "server/model_loader.h"

namespace pelton::server {
namespace {

using State = ModelCatalogue::State;

void write_entry(base::JsonWriter& json, const ModelCatalogue::Entry& entry,
                 const ModelCatalogue::Table& table, const ModelMemory& memory, bool leaving) {
  json.begin_object().key("name").string(entry.names.id).key("aliases").begin_array();
  for (const std::string& alias : entry.names.aliases) json.string(alias);
  json.end_array().key("default").boolean(entry.names.id == table.default_id);
  const bool draining = leaving && entry.state == State::kServing;
  json.key("state").string(draining ? "draining" : ModelCatalogue::state_name(entry.state));
  json.key("memory_bytes");
  const auto bytes = memory.by_model.find(entry.names.id);
  if (bytes == memory.by_model.end()) {
    json.null();
  } else {
    json.integer(bytes->second);
  }
  json.key("wakes").integer(entry.wakes).key("cold_start_seconds");
  if (entry.wakes == 0) {
    json.null();
  } else {
    json.number(static_cast<double>(entry.last_wake_ns) * 1e-9);
  }
  json.key("error");
  if (entry.error) {
    json.string(entry.error->message);
  } else {
    json.null();
  }
  json.end_object();
}

}  // namespace

std::string models_report(const Services& services, const ModelMemory& memory) {
  const auto table = services.catalogue.table();
  std::string out;
  base::JsonWriter json(out);
  json.begin_object().key("models").begin_array();
  for (const ModelCatalogue::Entry& entry : table->entries) {
    write_entry(json, entry, *table, memory, services.leaving);
  }
  json.end_array().key("memory").begin_object();
  json.key("budget_bytes").integer(memory.budget).key("left_bytes").integer(memory.left);
  json.end_object().end_object();
  return out;
}

Result<std::string> model_report(const Services& services, const ModelMemory& memory,
                                 std::string_view id) {
  const auto table = services.catalogue.table();
  TRY_ASSIGN(const ModelCatalogue::Entry* const entry, entry_named(*table, id));
  std::string out;
  base::JsonWriter json(out);
  write_entry(json, *entry, *table, memory, services.leaving);
  return out;
}

}  // namespace pelton::server
