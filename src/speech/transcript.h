// What was said in a recording, as a value, and in the forms that people and programs read: plain
// text, SubRip, WebVTT, OpenAI's JSON. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"

namespace pelton::speech {

struct Word {
  std::string text;  // with the blank before it
  double begin_s = 0.0;
  double end_s = 0.0;
  double probability = 0.0;
};

struct Segment {
  double begin_s = 0.0;
  double end_s = 0.0;
  int64_t seek = 0;  // where its window begins, in hundredths of a second
  std::string text;  // mostly begins with a blank
  std::vector<TokenId> tokens;
  // Of its window: at which temperature it was decoded, how likely its tokens were, how well its
  // text can be compressed, how likely nobody speaks.
  double temperature = 0.0;
  double average_logprob = 0.0;
  double compression_ratio = 0.0;
  double no_speech = 0.0;
  std::vector<Word> words;  // where they were asked for
};

struct Transcript {
  std::string language;  // "en": as it was named, or detected; empty: the model knows only one
  bool translates = false;
  double seconds = 0.0;  // of the recording
  std::vector<Segment> segments;
};

// One after the other, without the blanks before the first.
std::string plain_text(const Transcript& transcript);
// "00:00:01,500 --> 00:00:03,000"
std::string subrip(const Transcript& transcript);
std::string web_vtt(const Transcript& transcript);

// {"text":...,"usage":{...}}
std::string json(const Transcript& transcript);
// Task, language, duration, text; segments and words where they were asked for.
struct Granularities {
  bool segments = true;
  bool words = false;
};
std::string verbose_json(const Transcript& transcript, Granularities granularities);
// One segment as it stands there.
void append_segment_json(std::string& out, const Segment& segment, int64_t id);
// {"type":"duration","seconds":N}: what OpenAI charges for, whole seconds.
void append_usage_json(std::string& out, const Transcript& transcript);

// "english" of "en", as OpenAI's verbose_json says it; a code that is none of Whisper's is its own
// name.
std::string_view language_name(std::string_view code);
// "en" of "English", "english" or "en"; empty: there is no such language.
std::string_view language_code(std::string_view name);

// How many times fewer bytes zlib makes of a text: above 2.4 it repeats itself. 0: of no text.
double compression_ratio(std::string_view text);

}  // namespace pelton::speech
