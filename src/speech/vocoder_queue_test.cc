#include "speech/vocoder_queue.h"

#include <atomic>
#include <chrono>
#include <future>
#include <latch>

#include <gmock/gmock.h>

namespace pelton::speech {
namespace {

using std::chrono::seconds;

// A frame of one sample: the window's first code, of 100.
class OneSample final : public Vocoder {
 public:
  explicit OneSample(std::atomic<int>& decoded, std::latch* gate = nullptr)
      : decoded_(decoded), gate_(gate) {}

  int sample_rate() const override { return 24'000; }
  int frame_samples() const override { return 1; }
  int threads() const override { return 1; }
  std::vector<float> kept_frame(const AudioWindow& window, int) override {
    ++decoded_;
    if (gate_ != nullptr) gate_->wait();
    return {static_cast<float>(window[0]) / 100.0f};
  }

 private:
  std::atomic<int>& decoded_;
  std::latch* gate_;
};

AudioWindow window_of(int code) {
  AudioWindow window{};
  window[0] = code;
  return window;
}

TEST(VocoderQueue, DecodesInOrder) {
  std::atomic<int> decoded = 0;
  VocoderQueue queue(std::make_unique<OneSample>(decoded));
  std::promise<std::string> first;
  std::promise<std::string> second;
  const auto one = queue.submit({.windows = {window_of(100), window_of(0)},
                                 .done = [&](std::string pcm) { first.set_value(pcm); }});
  const auto two = queue.submit(
      {.windows = {window_of(100)}, .done = [&](std::string pcm) { second.set_value(pcm); }});
  auto of_first = first.get_future();
  auto of_second = second.get_future();
  ASSERT_EQ(of_first.wait_for(seconds(60)), std::future_status::ready);
  ASSERT_EQ(of_second.wait_for(seconds(60)), std::future_status::ready);
  EXPECT_EQ(of_first.get(), std::string("\xff\x7f\0\0", 4));
  EXPECT_EQ(of_second.get(), std::string("\xff\x7f", 2));
  EXPECT_EQ(decoded, 3);
}

TEST(VocoderQueue, WhatNobodyWantsIsNotDecoded) {
  std::atomic<int> decoded = 0;
  std::latch gate(1);
  VocoderQueue queue(std::make_unique<OneSample>(decoded, &gate));
  std::atomic<bool> was_done = false;
  auto left_amid = queue.submit({.windows = {window_of(1), window_of(2), window_of(3)},
                                 .done = [&](const std::string&) { was_done = true; }});
  while (decoded == 0) std::this_thread::yield();
  auto left_before = queue.submit(
      {.windows = {window_of(4)}, .done = [&](const std::string&) { was_done = true; }});
  EXPECT_EQ(queue.size(), 2U);
  left_amid = nullptr;
  left_before = nullptr;
  gate.count_down();
  std::promise<void> last;
  auto of_last = last.get_future();
  const auto wanted = queue.submit(
      {.windows = {window_of(5)}, .done = [&](const std::string&) { last.set_value(); }});
  ASSERT_EQ(of_last.wait_for(seconds(60)), std::future_status::ready);
  EXPECT_EQ(decoded, 2);  // the first window of the first job, and the last job's
  EXPECT_FALSE(was_done);
}

}  // namespace
}  // namespace pelton::speech
