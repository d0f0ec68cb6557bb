// pelton store ls, erase: what serve --response-store and --batches have left on a disk.
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/store_verbs.h"
#include "store/stored_tenants.h"

namespace pelton::apps {
namespace {

std::string shown(const std::string& tenant) {
  return tenant.empty() ? "(no tenant)" : tenant;
}

const char* how_kept(const store::StoredTenant& tenant) {
  if (!tenant.is_encrypted) return "not encrypted";
  return tenant.has_key ? "encrypted with a key of its own"
                        : "encrypted with a key that is destroyed";
}

Result<void> ls(const cli::Arguments& arguments) {
  TRY_ASSIGN(const std::vector<store::StoredTenant> tenants,
             store::list_stored_tenants(arguments.text("PATH")));
  std::string out;
  for (const store::StoredTenant& tenant : tenants) {
    out +=
        fmt::format("{}: {} entries, {}\n", shown(tenant.name), tenant.entries, how_kept(tenant));
  }
  return write_text(out);
}

Result<void> erase(const cli::Arguments& arguments) {
  TRY_ASSIGN(const int64_t erased,
             store::erase_stored_tenant(arguments.text("PATH"), arguments.text("--tenant")));
  return write_text(fmt::format("{} entries erased\n", erased));
}

cli::Positional path() {
  return {.name = "PATH",
          .help = "the file of serve --response-store sqlite:FILE, or the folder of --batches"};
}

}  // namespace

std::vector<cli::Verb> store_verbs() {
  return {{.name = "store ls",
           .summary = "Lists the tenants that have something in a store, and what is encrypted.",
           .about = "While no server uses it. Needs no key.",
           .positionals = {path()},
           .examples = {"pelton store ls /var/lib/pelton/responses.db"},
           .run = ls},
          {.name = "store erase",
           .summary = "Erases all that a tenant has in a store, and destroys its key.",
           .about =
               "While no server uses it. Needs no key. Where the store is encrypted, copies of it\n"
               "that lie elsewhere are unreadable from then on, unless PATH.keys was copied too.",
           .positionals = {path()},
           .flags = {{.name = "--tenant",
                      .value = "NAME",
                      .help = "whose; \"\" for what a server without keys has stored",
                      .required = true}},
           .exclusive = {{"--tenant"}},
           .examples = {"pelton store erase /var/lib/pelton/responses.db --tenant acme",
                        "pelton store erase /var/lib/pelton/batches --tenant acme"},
           .run = erase}};
}

}  // namespace pelton::apps
