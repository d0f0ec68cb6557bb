#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "telemetry/histogram.h"
#include "telemetry/process_usage.h"
#include "telemetry/prometheus_text.h"

namespace pelton::telemetry {
namespace {

TEST(Histogram, CountsUpToEachBound) {
  Histogram histogram({0.5, 1.0, 2.0});
  for (const double value : {0.1, 0.5, 0.7, 2.0, 3.0, -1.0}) histogram.observe(value);
  histogram.observe_times(1.5, 4);
  histogram.observe(std::numeric_limits<double>::quiet_NaN());
  const Histogram::Reading reading = histogram.read();
  EXPECT_THAT(reading.up_to, testing::ElementsAre(3, 4, 9, 10));
  EXPECT_DOUBLE_EQ(reading.sum, 0.1 + 0.5 + 0.7 + 2.0 + 3.0 - 1.0 + 6.0);
}

TEST(Histogram, LosesNothingBetweenThreads) {
  Histogram histogram({10.0});
  const auto work = [&] {
    for (int i = 0; i < 20'000; ++i) histogram.observe(1.0);
  };
  std::thread one(work);
  std::thread two(work);
  one.join();
  two.join();
  EXPECT_EQ(histogram.read().count(), 40'000);
  EXPECT_DOUBLE_EQ(histogram.read().sum, 40'000.0);
}

TEST(Histogram, OneTwoFive) {
  EXPECT_THAT(one_two_five(100), testing::ElementsAre(1, 2, 5, 10, 20, 50, 100));
  EXPECT_THAT(one_two_five(131), testing::ElementsAre(1, 2, 5, 10, 20, 50, 100, 131));
  EXPECT_THAT(one_two_five(1), testing::ElementsAre(1));
}

TEST(PrometheusText, IsWhatPrometheusReads) {
  PrometheusText text;
  text.set_common({{"model_name", "a\"b\\c\nd"}});
  text.gauge("x", "A thing.", 1.5);
  text.family("y_total", PrometheusText::Type::kCounter, "Things.");
  text.sample({{"kind", "k"}}, 12345678901.0);
  Histogram histogram({0.5, 2});
  histogram.observe(1.0);
  text.set_common({});
  text.family("z_seconds", PrometheusText::Type::kHistogram, "Times.");
  text.histogram({}, histogram);
  EXPECT_EQ(text.text(),
            "# HELP x A thing.\n# TYPE x gauge\nx{model_name=\"a\\\"b\\\\c\\nd\"} 1.5\n"
            "# HELP y_total Things.\n# TYPE y_total counter\n"
            "y_total{model_name=\"a\\\"b\\\\c\\nd\",kind=\"k\"} 12345678901\n"
            "# HELP z_seconds Times.\n# TYPE z_seconds histogram\n"
            "z_seconds_bucket{le=\"0.5\"} 0\nz_seconds_bucket{le=\"2\"} 1\n"
            "z_seconds_bucket{le=\"+Inf\"} 1\nz_seconds_sum 1\nz_seconds_count 1\n");
}

TEST(PrometheusText, AFamilyStandsOnceWithEverybodysSamples) {
  PrometheusText text;
  for (const std::string_view model : {"a", "b"}) {
    text.set_common({{"model_name", model}});
    text.gauge("x", "A thing.", 1);
    text.counter("y_total", "Things.", 2);
  }
  EXPECT_EQ(text.text(),
            "# HELP x A thing.\n# TYPE x gauge\nx{model_name=\"a\"} 1\nx{model_name=\"b\"} 1\n"
            "# HELP y_total Things.\n# TYPE y_total counter\n"
            "y_total{model_name=\"a\"} 2\ny_total{model_name=\"b\"} 2\n");
}

TEST(ProcessUsage, SeesDescriptorsAndThreadsComeAndGo) {
  const ProcessUsage before = process_usage();
  EXPECT_EQ(process_usage().descriptors, before.descriptors);
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  std::atomic<bool> named{false};
  std::atomic<bool> over{false};
  std::thread thread([&] {
    pthread_setname_np(pthread_self(), "a-test-thread");
    named = true;
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (!named) std::this_thread::yield();
  ProcessUsage during = process_usage();
  EXPECT_EQ(during.descriptor_count(), before.descriptor_count() + 4);
  EXPECT_EQ(during.threads["a-test-thread"], 1);
  EXPECT_EQ(during.thread_count(), before.thread_count() + 1);
  ProcessUsage earlier = before;
  EXPECT_EQ(during.descriptors["socket"], earlier.descriptors["socket"] + 2);
  EXPECT_EQ(during.descriptors["pipe"], earlier.descriptors["pipe"] + 2);
  over = true;
  thread.join();
  for (const int descriptor : {pair[0], pair[1], pipes[0], pipes[1]}) close(descriptor);
  EXPECT_EQ(process_usage().descriptors, before.descriptors);
}

TEST(ProcessUsage, KnowsMemoryAndTime) {
  const ProcessUsage usage = process_usage();
  EXPECT_GT(usage.resident_bytes, 1 << 20);
  EXPECT_GE(usage.resident_peak_bytes, usage.resident_bytes);
  EXPECT_GT(usage.descriptors_max, 0);
  EXPECT_GT(usage.cpu_seconds, 0.0);
  const double now = static_cast<double>(time(nullptr));
  EXPECT_LE(usage.start_time_seconds, now + 2);
  EXPECT_GT(usage.start_time_seconds, now - 3600);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocator has no books
TEST(ProcessUsage, KnowsTheAllocatorsBooks) {
  const ProcessUsage before = process_usage();
  EXPECT_GT(before.heap_used_bytes, 0);
  EXPECT_GE(before.heap_used_bytes, before.heap_mapped_bytes);
  std::string large(40 << 20, 'x');
  std::vector<std::string> small(1000, std::string(1000, 'y'));
  const ProcessUsage during = process_usage();
  EXPECT_GE(during.heap_mapped_bytes - before.heap_mapped_bytes, 40 << 20);
  EXPECT_GE(during.heap_used_bytes - before.heap_used_bytes, 41'000'000);
  std::string().swap(large);
  EXPECT_LT(process_usage().heap_mapped_bytes, during.heap_mapped_bytes);
}
#endif

}  // namespace
}  // namespace pelton::telemetry
