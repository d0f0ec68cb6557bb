#include "gateway/media_request.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

net::HttpRequest post(std::string path, std::string body) {
  return {.method = "POST",
          .path = std::move(path),
          .query = {},
          .headers = {},
          .body = std::move(body),
          .remote = {}};
}

// As "image", "video", "job", "content", "list", "".
std::string kind_of(std::string method, std::string path) {
  net::HttpRequest request = post(std::move(path), "");
  request.method = std::move(method);
  const auto kind = media_kind_of(request);
  if (!kind) return "";
  switch (*kind) {
    case MediaKind::kImage:
      return "image";
    case MediaKind::kVideo:
      return "video";
    case MediaKind::kVideoJob:
      return "job";
    case MediaKind::kVideoContent:
      return "content";
    case MediaKind::kVideoList:
      return "list";
  }
  return "?";
}

TEST(MediaRequest, ItsPathSaysWhatIsAskedFor) {
  EXPECT_EQ(kind_of("POST", "/v1/images/generations"), "image");
  EXPECT_EQ(kind_of("POST", "/v1/images/edits"), "image");
  EXPECT_EQ(kind_of("GET", "/v1/images/generations"), "");
  EXPECT_EQ(kind_of("POST", "/v1/videos"), "video");
  EXPECT_EQ(kind_of("GET", "/v1/videos"), "list");
  EXPECT_EQ(kind_of("GET", "/v1/videos/a"), "job");
  EXPECT_EQ(kind_of("DELETE", "/v1/videos/a"), "job");
  EXPECT_EQ(kind_of("POST", "/v1/videos/a/cancel"), "job");
  EXPECT_EQ(kind_of("POST", "/v1/videos/a/remix"), "video");
  EXPECT_EQ(kind_of("GET", "/v1/videos/a/content"), "content");
  EXPECT_EQ(kind_of("GET", "/v1/videosx"), "");
  EXPECT_EQ(kind_of("POST", "/v1/chat/completions"), "");
  EXPECT_EQ(video_of_path("/v1/videos/a/content"), "a");
  EXPECT_EQ(video_of_path("/v1/videos/"), "");
  EXPECT_EQ(video_of_path("/v1/videos/" + std::string(300, 'a')), "");
}

int64_t units(const char* path, std::string body, const MediaConfig& limits = {}) {
  const net::HttpRequest request = post(path, std::move(body));
  const auto work = read_media_work(request, *media_kind_of(request), limits);
  return work.ok() ? work->units : -1;
}

TEST(MediaRequest, WorkIsPicturesTimesStepsTimesPixels) {
  const char* const image = "/v1/images/generations";
  EXPECT_EQ(units(image, R"({"prompt":"x"})"), 16 * 30) << "1024x1024 in as many steps as usual";
  EXPECT_EQ(units(image, R"({"prompt":"x","size":"auto"})", {.steps = 4}), 16 * 4);
  EXPECT_EQ(units(image, R"({"prompt":"x","size":"512x512","n":3,"num_inference_steps":8})"), 96);
  EXPECT_EQ(units(image, R"({"prompt":"x","size":"1x1","steps":1})"), 1) << "never nothing";
  EXPECT_EQ(units(image, R"({"prompt":"x","width":512,"height":256,"steps":2})"), 4);
  const char* const video = "/v1/videos";
  EXPECT_EQ(units(video, R"({"prompt":"x","size":"256x256","seconds":"2","fps":10,"steps":3})"),
            60);
  EXPECT_EQ(units(video, R"({"prompt":"x","size":"256x256","num_frames":7,"steps":3})"), 21);
  EXPECT_EQ(units(video, R"({"prompt":"x","steps":2,"size":"256x256",
      "video_params":{"num_frames":9,"width":512,"height":512}})",
                  {.fps = 1}),
            9 * 2 * 4)
      << "the larger of what is said";
  const MediaConfig endless{
      .steps_max = 10'000, .pixels_max = 1 << 28, .images_max = 1000, .frames_max = 1'000'000};
  EXPECT_GT(units(video, R"({"prompt":"x","size":"16384x16384","num_frames":1000000,"n":1000,
      "steps":10000})",
                  endless),
            int64_t{1} << 40);
}

TEST(MediaRequest, AnAdapterIsNamedInSeveralWays) {
  const auto lora = [](const std::string& value, const MediaConfig& limits = {}) {
    const net::HttpRequest request =
        post("/v1/images/generations", R"({"prompt":"x","lora":)" + value + "}");
    const auto work = read_media_work(request, MediaKind::kImage, limits);
    return work.ok() ? work->lora : "refused: " + work.error().field;
  };
  EXPECT_EQ(lora("\"ink\""), "ink");
  EXPECT_EQ(lora(R"({"name":"ink","scale":0.5})"), "ink");
  EXPECT_EQ(lora(R"({"lora_name":"ink"})"), "ink");
  EXPECT_EQ(lora("null"), "");
  EXPECT_EQ(lora(R"({"name":"ink","local_path":"/x"})"), "refused: lora.local_path");
  EXPECT_EQ(lora(R"({"name":"ink","local_path":"/x"})", {.trusts_clients = true}), "ink");
  EXPECT_EQ(lora("[]"), "refused: lora");
  EXPECT_EQ(lora("\"" + std::string(257, 'a') + "\""), "refused: lora");
}

TEST(MediaRequest, WhetherItStreamsIsAWordOfTwo) {
  const auto refused = [](const net::HttpRequest& request) {
    const auto work = read_media_work(request, *media_kind_of(request), {});
    return work.ok() ? "" : work.error().field;
  };
  const auto json = [&](const std::string& stream) {
    return refused(post("/v1/images/generations", R"({"prompt":"x","stream":)" + stream + "}"));
  };
  for (const char* const good : {"true", "false", "null"}) EXPECT_EQ(json(good), "") << good;
  for (const char* const bad : {"5", "0", "\"x\"", "\"true\"", "[]", "{}"}) {
    EXPECT_EQ(json(bad), "stream") << bad;
  }
  const auto form = [&](const std::string& stream) {
    const auto part = [](const std::string& name, const std::string& value) {
      return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value +
             "\r\n";
    };
    net::HttpRequest request =
        post("/v1/images/edits", part("prompt", "x") + part("stream", stream) + "--b--\r\n");
    request.headers.add("Content-Type", "multipart/form-data; boundary=b");
    return refused(request);
  };
  for (const char* const good : {"true", "false", "True", "0"}) EXPECT_EQ(form(good), "") << good;
  for (const char* const bad : {"5", "x", ""}) EXPECT_EQ(form(bad), "stream") << bad;
}

TEST(MediaRequest, AVideosStateIsRead) {
  EXPECT_FALSE(video_state("<html>"));
  EXPECT_FALSE(video_state("[]"));
  EXPECT_FALSE(video_state(R"({"status":"queued"})"));
  EXPECT_FALSE(video_state(R"({"id":"","status":"queued"})"));
  const auto under_way = video_state(R"({"id":"v","status":"in_progress","progress":25})");
  ASSERT_TRUE(under_way);
  EXPECT_EQ(under_way->phase, VideoState::Phase::kUnderWay);
  EXPECT_EQ(under_way->progress, 0.25);
  EXPECT_EQ(video_state(R"({"id":"v","progress":1e300})")->progress, 1);
  EXPECT_EQ(video_state(R"({"id":"v","progress":-5})")->progress, 0);
  EXPECT_EQ(video_state(R"({"id":"v","status":"completed"})")->phase, VideoState::Phase::kDone);
  EXPECT_EQ(video_state(R"({"id":"v","status":"failed"})")->phase, VideoState::Phase::kFailed);
}

}  // namespace
}  // namespace pelton::gateway
