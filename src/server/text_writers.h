// How llama.cpp's /completion and TGI's and SGLang's /generate write the answer of one text.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "server/text_answer.h"

namespace pelton::server {

struct TextHead {
  std::string id;
  std::string model;
  std::string prompt;         // its text, where the answer shows it
  int64_t prompt_tokens = 0;  // while it is streamed
  uint64_t seed = 0;
  int64_t arrived_ns = 0;
  const base::Clock* clock = nullptr;  // outlives the writer
  bool shows_tokens = false;           // ids, of whole answers of llama.cpp's
  bool shows_details = false;          // TGI's
};

std::unique_ptr<TextWriter> llama_writer(TextHead head);
std::unique_ptr<TextWriter> tgi_writer(TextHead head);
std::unique_ptr<TextWriter> sglang_writer(TextHead head);

}  // namespace pelton::server
