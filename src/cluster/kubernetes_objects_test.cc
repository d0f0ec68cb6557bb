#include "cluster/kubernetes_objects.h"

#include <gtest/gtest.h>

namespace pelton::cluster {
namespace {

constexpr std::string_view kObject = R"({"metadata":{"name":"w-1","resourceVersion":"7"}})";

TEST(KubernetesObjects, AListIsRead) {
  const auto list =
      parse_kubernetes_list(R"({"metadata":{"resourceVersion":"12","continue":"next"},"items":[)" +
                            std::string(kObject) + "]}");
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->resource_version, "12");
  EXPECT_EQ(list->next, "next");
  ASSERT_EQ(list->items.size(), 1u);
  EXPECT_EQ(kubernetes_name(list->items[0]), "w-1");
  EXPECT_FALSE(parse_kubernetes_list("{}").ok());
  EXPECT_FALSE(parse_kubernetes_list(R"({"items":[7]})").ok());
  EXPECT_FALSE(parse_kubernetes_list(R"({"items":[{"metadata")").ok()) << "half of it";
}

TEST(KubernetesObjects, EventsAreRead) {
  using Kind = KubernetesEvent::Kind;
  const auto event = [](std::string_view type, std::string_view object) {
    return parse_kubernetes_event(R"({"type":")" + std::string(type) + R"(","object":)" +
                                  std::string(object) + "}");
  };
  EXPECT_EQ(event("ADDED", kObject)->kind, Kind::kPut);
  EXPECT_EQ(event("MODIFIED", kObject)->resource_version, "7");
  EXPECT_EQ(kubernetes_name(event("DELETED", kObject)->object), "w-1");
  EXPECT_EQ(event("BOOKMARK", R"({"metadata":{"resourceVersion":"99"}})")->resource_version, "99");
  EXPECT_EQ(event("ERROR", R"({"code":410})")->kind, Kind::kExpired);
  EXPECT_EQ(event("ERROR", R"({"code":500,"message":"x"})").error().code, ErrorCode::kIo);
  EXPECT_FALSE(event("GONE", kObject).ok());
  EXPECT_FALSE(event("ADDED", "{}").ok());
  EXPECT_FALSE(event("ADDED", "7").ok());
}

TEST(KubernetesObjects, AStatusSaysWhy) {
  EXPECT_EQ(kubernetes_message(R"({"kind":"Status","message":"no such thing"})"), "no such thing");
  EXPECT_EQ(kubernetes_message("<html>"), "");
  EXPECT_EQ(kubernetes_message(R"({"message":")" + std::string(5'000, 'x') + "\"}").size(), 300u);
}

}  // namespace
}  // namespace pelton::cluster
