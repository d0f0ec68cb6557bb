#include "speech/transcript.h"

#include <cmath>

#include <fmt/format.h>
#include <zlib.h>

#include "base/json_writer.h"
#include "speech/language_names.h"

namespace pelton::speech {
namespace {

std::string_view without_blanks_before(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  return first == std::string_view::npos ? "" : text.substr(first);
}

std::string time_text(double seconds, char point) {
  const auto ms = static_cast<int64_t>(std::llround(seconds * 1000));
  return fmt::format("{:02}:{:02}:{:02}{}{:03}", ms / 3'600'000, ms / 60'000 % 60, ms / 1000 % 60,
                     point, ms % 1000);
}

// A cue ends at an empty line, and an arrow begins one: a text must have neither. WebVTT reads
// marks of its own in it, as HTML does.
std::string cue_text(std::string_view text, bool has_marks) {
  std::string out;
  for (const char c : without_blanks_before(text)) {
    if (c == '\r' || (c == '\n' && (out.empty() || out.back() == '\n'))) continue;
    if (c == '>' && out.ends_with("--")) out.pop_back();
    if (has_marks && c == '&') {
      out += "&amp;";
    } else if (has_marks && c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string cues(const Transcript& transcript, char point, bool are_numbered) {
  std::string out;
  int number = 0;
  for (const Segment& segment : transcript.segments) {
    if (are_numbered) out += fmt::format("{}\n", ++number);
    out += fmt::format("{} --> {}\n{}\n\n", time_text(segment.begin_s, point),
                       time_text(segment.end_s, point), cue_text(segment.text, !are_numbered));
  }
  return out;
}

char lower(char c) {
  return static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
}

}  // namespace

std::string plain_text(const Transcript& transcript) {
  std::string all;
  for (const Segment& segment : transcript.segments) all += segment.text;
  return std::string(without_blanks_before(all));
}

std::string subrip(const Transcript& transcript) {
  return cues(transcript, ',', true);
}

std::string web_vtt(const Transcript& transcript) {
  return "WEBVTT\n\n" + cues(transcript, '.', false);
}

void append_usage_json(std::string& out, const Transcript& transcript) {
  base::JsonWriter(out)
      .begin_object()
      .key("type")
      .string("duration")
      .key("seconds")
      .integer(static_cast<int64_t>(std::ceil(transcript.seconds)))
      .end_object();
}

std::string json(const Transcript& transcript) {
  std::string out;
  std::string usage;
  append_usage_json(usage, transcript);
  base::JsonWriter(out)
      .begin_object()
      .key("text")
      .string(plain_text(transcript))
      .key("usage")
      .raw(usage)
      .end_object();
  return out;
}

void append_segment_json(std::string& out, const Segment& segment, int64_t id) {
  base::JsonWriter writer(out);
  writer.begin_object().key("id").integer(id).key("seek").integer(segment.seek);
  writer.key("start").number(segment.begin_s).key("end").number(segment.end_s);
  writer.key("text").string(segment.text).key("tokens").begin_array();
  for (const TokenId token : segment.tokens) writer.integer(token);
  writer.end_array().key("temperature").number(segment.temperature);
  writer.key("avg_logprob").number(segment.average_logprob);
  writer.key("compression_ratio").number(segment.compression_ratio);
  writer.key("no_speech_prob").number(segment.no_speech).end_object();
}

std::string verbose_json(const Transcript& transcript, Granularities granularities) {
  std::string out;
  base::JsonWriter writer(out);
  writer.begin_object().key("task").string(transcript.translates ? "translate" : "transcribe");
  const std::string_view said = transcript.language;
  const std::string_view language = said.empty() ? "en" : said;
  writer.key("language").string(language_name(language));
  writer.key("duration").number(transcript.seconds);
  writer.key("text").string(plain_text(transcript));
  if (granularities.segments) {
    writer.key("segments").begin_array();
    int64_t id = 0;
    for (const Segment& segment : transcript.segments) {
      std::string one;
      append_segment_json(one, segment, id++);
      writer.raw(one);
    }
    writer.end_array();
  }
  if (granularities.words) {
    writer.key("words").begin_array();
    for (const Segment& segment : transcript.segments) {
      for (const Word& word : segment.words) {
        writer.begin_object().key("word").string(without_blanks_before(word.text));
        writer.key("start").number(word.begin_s).key("end").number(word.end_s).end_object();
      }
    }
    writer.end_array();
  }
  std::string usage;
  append_usage_json(usage, transcript);
  writer.key("usage").raw(usage).end_object();
  return out;
}

std::string_view language_name(std::string_view code) {
  for (const auto& [known, name] : kLanguageNames) {
    if (known == code) return name;
  }
  return code;
}

std::string_view language_code(std::string_view name) {
  std::string small(name);
  for (char& c : small) c = lower(c);
  for (const auto& [code, known] : kLanguageNames) {
    if (code == small || known == small) return code;
  }
  return {};
}

double compression_ratio(std::string_view text) {
  if (text.empty()) return 0.0;
  uLongf size = compressBound(static_cast<uLong>(text.size()));
  std::string packed(size, '\0');
  const int done = compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                             reinterpret_cast<const Bytef*>(text.data()),
                             static_cast<uLong>(text.size()), Z_DEFAULT_COMPRESSION);
  return done == Z_OK ? static_cast<double>(text.size()) / static_cast<double>(size) : 0.0;
}

}  // namespace pelton::speech
