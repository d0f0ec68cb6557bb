// Foreign bytes as what an API server lists and says in a watch.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "cluster/kubernetes_objects.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::cluster;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto list = parse_kubernetes_list(bytes); list.ok()) {
    for (const pelton::Json& item : list->items) CHECK(item.is_object());
  }
  if (const auto event = parse_kubernetes_event(bytes); event.ok()) {
    CHECK(event->kind != KubernetesEvent::Kind::kPut || !kubernetes_name(event->object).empty());
  }
  CHECK(kubernetes_message(bytes).size() <= 300);
  return 0;
}
