// All models by name, also those that are being loaded or could not be, as JSON: what GET
// /admin/models says. Any thread.
#pragma once

#include <string>

#include "server/model_catalogue.h"

namespace pelton::server {

// {"models": [{"name", "aliases", "state", "error"}, ...]}; "error" is null but of one that failed.
std::string models_report(const ModelCatalogue& catalogue);

}  // namespace pelton::server
