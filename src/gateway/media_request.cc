#include "gateway/media_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "net/multipart_form.h"

namespace pelton::gateway {
namespace {

constexpr std::string_view kVideos = "/v1/videos";
constexpr size_t kPromptBytesMax = 65'536;
constexpr size_t kTextBytesMax = 4096;
constexpr size_t kNameBytesMax = 256;
constexpr int64_t kDefaultSide = 1024;  // of a picture whose size nobody says
constexpr int64_t kDefaultVideoPixels = int64_t{720} * 1280;
constexpr int64_t kDefaultSeconds = 4;
constexpr int64_t kFpsMax = 240;
constexpr double kScaleMax = 1000;
constexpr double kUnitsMost = 1e15;  // whatever limits an operator gives

// What a worker would read or write where a client says, and bags of the engine's own parameters.
constexpr std::array<std::string_view, 8> kOfOperators = {
    "output_path",      "file_path",  "generator_device", "frame_interpolation_model_path",
    "diffusers_kwargs", "extra_args", "extra_params",     "extra_body"};
constexpr std::array<std::string_view, 3> kLoraPaths = {"path", "lora_path", "local_path"};
constexpr std::array<std::string_view, 3> kLoraNames = {"name", "lora_name", "adapter"};
constexpr std::array<std::string_view, 8> kTexts = {
    "negative_prompt", "quality",       "style",           "background",
    "moderation",      "output_format", "response_format", "user"};
constexpr std::array<std::string_view, 6> kWordsOfForms = {"true",  "True",  "1",
                                                           "false", "False", "0"};
constexpr std::array<std::string_view, 4> kScales = {"guidance_scale", "guidance_scale_2",
                                                     "true_cfg_scale", "flow_shift"};

Error bad(std::string_view field, std::string_view what) {
  return {ErrorCode::kInvalidArgument, fmt::format("'{}' {}", field, what), std::string(field)};
}

// The fields of a body of JSON, or of a form: there each is a text, also what is a number.
class Fields {
 public:
  static Result<Fields> of(const net::HttpRequest& request) {
    const std::string_view type = request.headers.get("Content-Type");
    Fields fields;
    if (!net::is_form(type)) {
      TRY_ASSIGN(fields.object_, Json::parse(request.body));
      if (fields.object_.is_object()) return fields;
      return Error{ErrorCode::kInvalidArgument, "the body is no JSON object", {}};
    }
    fields.is_form_ = true;
    TRY_ASSIGN(const std::vector<net::FormPart> parts, net::parse_form(type, request.body));
    for (const net::FormPart& part : parts) {
      if (part.file_name) continue;
      const bool may_come_again = part.name.ends_with("[]");
      // Which of two is meant is a matter of its reader.
      if (!may_come_again && fields.object_.find(part.name) != nullptr) {
        return bad(part.name, "is given twice");
      }
      fields.object_.set(part.name, Json(part.content));
    }
    return fields;
  }

  static Fields within(const Json& object) {
    Fields fields;
    fields.object_ = object;
    return fields;
  }

  // Null: it is absent.
  const Json* find(std::string_view name) const {
    const Json* value = object_.find(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  Result<std::optional<std::string>> text(std::string_view name, size_t bytes_max) const {
    const Json* value = find(name);
    if (value == nullptr) return std::optional<std::string>();
    if (!value->is_string()) return bad(name, "must be a string");
    if (value->as_string().size() > bytes_max) {
      return bad(name, fmt::format("has more than {} bytes", bytes_max));
    }
    return std::optional(value->as_string());
  }

  enum class Texts { kOfForms, kToo };  // whether numbers may be texts in JSON, too
  Result<std::optional<int64_t>> integer(std::string_view name, Texts texts) const {
    const Json* value = find(name);
    if (value == nullptr) return std::optional<int64_t>();
    if (value->is_string() && (is_form_ || texts == Texts::kToo)) {
      const std::string& digits = value->as_string();
      int64_t number = 0;
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), number);
      if (error == std::errc() && end == digits.data() + digits.size())
        return std::optional(number);
    } else if (const auto number = object_.integer(name)) {
      return number;
    }
    return bad(name, "must be a whole number");
  }

  Result<void> boolean(std::string_view name) const {
    const Json* value = find(name);
    if (value == nullptr || value->is_bool()) return {};
    const auto is = [&](std::string_view word) { return value->as_string() == word; };
    const bool is_text = is_form_ && value->is_string();
    if (is_text && std::ranges::any_of(kWordsOfForms, is)) return {};
    return bad(name, "must be true or false");
  }

  Result<void> number(std::string_view name, double most) const {
    const Json* value = find(name);
    if (value == nullptr) return {};
    double number = NAN;
    if (value->is_number()) number = value->as_number();
    if (is_form_ && value->is_string()) {
      const std::string& digits = value->as_string();
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), number);
      if (error != std::errc() || end != digits.data() + digits.size()) number = NAN;
    }
    if (number >= 0 && number <= most) return {};
    return bad(name, fmt::format("must be a number from 0 to {}", most));
  }

 private:
  Json object_{Json::Object{}};
  bool is_form_ = false;
};

// `limit`: by what name the configuration has the largest; empty: by none.
struct Range {
  int64_t least = 1;
  int64_t most = 1;
  std::string_view limit;
};
Result<std::optional<int64_t>> read(const Fields& fields, std::string_view name, const Range& range,
                                    Fields::Texts texts = Fields::Texts::kOfForms) {
  TRY_ASSIGN(const std::optional<int64_t> value, fields.integer(name, texts));
  if (!value || (*value >= range.least && *value <= range.most)) return value;
  const std::string named = range.limit.empty() ? "" : fmt::format(" ({})", range.limit);
  return bad(name, fmt::format("is {}: from {} to {}{}", *value, range.least, range.most, named));
}

Result<int64_t> pixels_of(std::string_view name, int64_t width, int64_t height,
                          const MediaConfig& limits) {
  const bool fits = width >= 1 && height >= 1 && width <= limits.pixels_max &&
                    height <= limits.pixels_max && width * height <= limits.pixels_max;
  if (fits) return width * height;
  return bad(
      name, fmt::format("is {}x{}: 1 to {} pixels (pixels_max)", width, height, limits.pixels_max));
}

// "1024x1024"; none: "auto", or nothing is said.
Result<std::optional<int64_t>> read_size(const Fields& fields, const MediaConfig& limits) {
  TRY_ASSIGN(const std::optional<std::string> text, fields.text("size", kNameBytesMax));
  if (!text || text->empty() || *text == "auto") return std::optional<int64_t>();
  const char* const end = text->data() + text->size();
  int64_t width = 0;
  int64_t height = 0;
  const auto [cross, bad_width] = std::from_chars(text->data(), end, width);
  if (bad_width == std::errc() && cross != end && *cross == 'x') {
    const auto [last, bad_height] = std::from_chars(cross + 1, end, height);
    if (bad_height == std::errc() && last == end) {
      TRY_ASSIGN(const int64_t pixels, pixels_of("size", width, height, limits));
      return std::optional(pixels);
    }
  }
  return bad("size", "must be WIDTHxHEIGHT, as in 1024x1024, or auto");
}

// Engines know these beside "size".
Result<std::optional<int64_t>> read_sides(const Fields& fields, const MediaConfig& limits) {
  const Range range{.most = limits.pixels_max, .limit = "pixels_max"};
  TRY_ASSIGN(const std::optional<int64_t> width, read(fields, "width", range));
  TRY_ASSIGN(const std::optional<int64_t> height, read(fields, "height", range));
  if (!width && !height) return std::optional<int64_t>();
  TRY_ASSIGN(const int64_t pixels,
             pixels_of(width ? "width" : "height", width.value_or(kDefaultSide),
                       height.value_or(kDefaultSide), limits));
  return std::optional(pixels);
}

// The larger of what is said: which one counts is the worker's affair.
Result<int64_t> read_pixels(const Fields& fields, MediaKind kind, const MediaConfig& limits) {
  TRY_ASSIGN(const std::optional<int64_t> size, read_size(fields, limits));
  TRY_ASSIGN(const std::optional<int64_t> sides, read_sides(fields, limits));
  if (size || sides) return std::max(size.value_or(0), sides.value_or(0));
  const int64_t usual =
      kind == MediaKind::kImage ? kDefaultSide * kDefaultSide : kDefaultVideoPixels;
  return std::min(usual, limits.pixels_max);
}

Result<int64_t> read_steps(const Fields& fields, const MediaConfig& limits) {
  const Range range{.most = limits.steps_max, .limit = "steps_max"};
  int64_t steps = 0;
  for (const std::string_view name : {"num_inference_steps", "steps"}) {
    TRY_ASSIGN(const std::optional<int64_t> said, read(fields, name, range));
    steps = std::max(steps, said.value_or(0));
  }
  return steps > 0 ? steps : limits.steps;
}

// By what it says of frames, or seconds and frames in each.
Result<int64_t> read_frames(const Fields& fields, const MediaConfig& limits) {
  const Range range{.most = limits.frames_max, .limit = "frames_max"};
  TRY_ASSIGN(const std::optional<int64_t> said, read(fields, "num_frames", range));
  TRY_ASSIGN(const std::optional<int64_t> fps, read(fields, "fps", {.most = kFpsMax}));
  TRY_ASSIGN(const std::optional<int64_t> seconds,
             read(fields, "seconds", range, Fields::Texts::kToo));
  const int64_t rate = fps.value_or(limits.fps);
  const int64_t frames = seconds.value_or(kDefaultSeconds) * rate;
  if (seconds && frames > limits.frames_max) {
    return bad("seconds", fmt::format("is {}, at {} frames in each: at most {} frames (frames_max)",
                                      *seconds, rate, limits.frames_max));
  }
  if (said && seconds) return std::max(*said, frames);
  return said.value_or(std::min<int64_t>(frames, limits.frames_max));
}

Result<void> check_rest(const Fields& fields, const MediaConfig& limits) {
  if (!limits.trusts_clients) {
    for (const std::string_view name : kOfOperators) {
      if (fields.find(name) == nullptr) continue;
      return bad(name,
                 "is not for clients here: it names the worker's own, or hides fields from "
                 "limits (trust_clients)");
    }
  }
  for (const std::string_view name : kTexts) TRY(fields.text(name, kTextBytesMax));
  for (const std::string_view name : kScales) TRY(fields.number(name, kScaleMax));
  TRY(fields.boolean("stream"));
  TRY(fields.integer("seed", Fields::Texts::kOfForms));
  TRY(read(fields, "output_compression", {.least = 0, .most = 100}));
  TRY(read(fields, "partial_images", {.least = 0, .most = 3}));
  return {};
}

Result<std::string> read_lora(const Fields& fields, const MediaConfig& limits) {
  const Json* lora = fields.find("lora");
  if (lora == nullptr) return std::string();
  const auto named = [](const std::string& name) -> Result<std::string> {
    if (name.size() <= kNameBytesMax) return name;
    return bad("lora", fmt::format("has a name of more than {} bytes", kNameBytesMax));
  };
  if (lora->is_string()) return named(lora->as_string());
  if (!lora->is_object()) return bad("lora", "must be an adapter's name, or an object with it");
  for (const std::string_view path : kLoraPaths) {
    if (limits.trusts_clients || lora->find(path) == nullptr) continue;
    return bad(fmt::format("lora.{}", path),
               "is not for clients here: it names a file of the worker's (trust_clients)");
  }
  for (const std::string_view name : kLoraNames) {
    if (const auto text = lora->string(name)) return named(*text);
  }
  return bad("lora", "has no name");
}

}  // namespace

std::string_view video_of_path(std::string_view path) {
  if (!path.starts_with(kVideos) || path.substr(kVideos.size(), 1) != "/") return {};
  const std::string_view rest = path.substr(kVideos.size() + 1);
  const std::string_view id = rest.substr(0, rest.find('/'));
  return id.size() <= kNameBytesMax ? id : std::string_view();
}

std::optional<MediaKind> media_kind_of(const net::HttpRequest& request) {
  const std::string_view path = request.path;
  const bool posts = request.method == "POST";
  if (path.starts_with("/v1/images/")) {
    return posts ? std::optional(MediaKind::kImage) : std::nullopt;
  }
  if (path == kVideos) return posts ? MediaKind::kVideo : MediaKind::kVideoList;
  if (video_of_path(path).empty()) return std::nullopt;
  if (posts && path.ends_with("/remix")) return MediaKind::kVideo;
  const bool is_content = request.method == "GET" && path.ends_with("/content");
  return is_content ? MediaKind::kVideoContent : MediaKind::kVideoJob;
}

Result<MediaWork> read_media_work(const net::HttpRequest& request, MediaKind kind,
                                  const MediaConfig& limits) {
  TRY_ASSIGN(const Fields fields, Fields::of(request));
  TRY_ASSIGN(const std::optional<std::string> prompt, fields.text("prompt", kPromptBytesMax));
  const bool needs_prompt = !request.path.ends_with("/variations");
  if (needs_prompt && (!prompt || prompt->empty())) return bad("prompt", "is missing or empty");
  TRY(check_rest(fields, limits));
  const Range images{.most = limits.images_max, .limit = "images_max"};
  TRY_ASSIGN(const std::optional<int64_t> count, read(fields, "n", images));
  TRY_ASSIGN(int64_t pixels, read_pixels(fields, kind, limits));
  TRY_ASSIGN(const int64_t steps, read_steps(fields, limits));
  int64_t pictures = count.value_or(1);
  if (kind == MediaKind::kVideo) {
    TRY_ASSIGN(int64_t frames, read_frames(fields, limits));
    // vLLM-Omni's bag of the same fields.
    if (const Json* inner = fields.find("video_params"); inner != nullptr) {
      if (!inner->is_object()) return bad("video_params", "must be an object");
      const Fields more = Fields::within(*inner);
      TRY_ASSIGN(const std::optional<int64_t> sides, read_sides(more, limits));
      TRY_ASSIGN(const int64_t inner_frames, read_frames(more, limits));
      pixels = std::max(pixels, sides.value_or(0));
      frames = std::max(frames, inner_frames);
    }
    pictures *= frames;
  }
  MediaWork work;
  const double units = static_cast<double>(pictures) * static_cast<double>(steps) *
                       static_cast<double>(pixels) / static_cast<double>(MediaWork::kUnitPixels);
  work.units = static_cast<int64_t>(std::clamp(units, 1.0, kUnitsMost));
  TRY_ASSIGN(work.lora, read_lora(fields, limits));
  return work;
}

std::optional<VideoState> video_state(std::string_view body) {
  const Result<Json> json = Json::parse(body);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  auto id = json->string("id");
  if (!id || id->empty() || id->size() > kNameBytesMax) return std::nullopt;
  VideoState state{.id = *std::move(id)};
  const std::string status = json->string("status").value_or("");
  if (status == "completed") state.phase = VideoState::Phase::kDone;
  if (status == "failed" || status == "cancelled") state.phase = VideoState::Phase::kFailed;
  const double percent = json->number("progress").value_or(0);
  if (percent > 0) state.progress = std::min(percent / 100, 1.0);
  return state;
}

}  // namespace pelton::gateway
