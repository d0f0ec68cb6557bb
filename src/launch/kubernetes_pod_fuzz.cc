// Foreign bytes as a pod, and as the book of replicas in a lease.
#include <cstdint>
#include <set>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "launch/kubernetes_pod.h"
#include "launch/replica_book.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::launch;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::map<std::string, KubernetesPod> pods;
  if (const auto json = pelton::Json::parse(bytes); json.ok()) {
    if (const auto pod = parse_kubernetes_pod(*json); pod.ok()) {
      CHECK(!pod->name.empty() && pod->index >= -1);
      pods[pod->name] = *pod;
    }
  }
  if (const auto book = parse_book(bytes); book.ok()) {
    const auto again = parse_book(book_text(*book));
    CHECK(again.ok() && *again == *book);
    std::set<std::pair<int, uint64_t>> had;
    const PodPlan plan = plan_pods(*book, pods, Shrinks::kFromTheEnd, had);
    CHECK(plan.pods >= 0 && plan.pods <= static_cast<int>(plan.book.replicas.size()));
  }
  return 0;
}
