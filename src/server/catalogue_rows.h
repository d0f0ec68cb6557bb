// For tests: rows of the catalogue of bad inputs, each a test of its own whose name begins with the
// row's id, and what a request of any protocol looks like.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/json_writer.h"
#include "engine/engine.h"

namespace pelton::server {

struct CatalogueRow {
  std::string name;   // "AP07_zero_tokens"
  std::string body;   // of the request
  std::string param;  // what the error names; empty: nothing
  int status = 400;
  std::string code = "invalid_value";
};

inline std::string name_of_row(const testing::TestParamInfo<CatalogueRow>& info) {
  return info.param.name;
}
inline std::ostream& operator<<(std::ostream& out, const CatalogueRow& row) {
  return out << row.body.substr(0, 200);
}

inline std::string json_text(std::string_view text) {
  std::string out;
  base::append_json_string(out, text);
  return out;
}

// Nothing of any request is left, at the latest when the engine has come to the end of its turn.
inline bool becomes_clean(const engine::Engine& engine) {
  for (int i = 0; i < 400 && !engine.ledger().clean(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return engine.ledger().clean();
}

// item,item,… with "#" made the number of each.
inline std::string repeated(int count, const std::string& item) {
  std::string list;
  for (int i = 0; i < count; ++i) {
    if (i > 0) list += ',';
    const size_t at = item.find('#');
    if (at == std::string::npos) {
      list += item;
    } else {
      list += item.substr(0, at) + std::to_string(i) + item.substr(at + 1);
    }
  }
  return list;
}

// What every protocol that takes JSON refuses alike, as members of a body; `tail` stands before and
// after them.
inline std::vector<CatalogueRow> common_rows(const std::string& head, const std::string& tail) {
  const std::string megabyte = "\"" + std::string(1 << 20, 'x') + "\"";
  const std::vector<CatalogueRow> members = {
      {"AP12_temperature_is_text", R"("temperature":"0.5")", "temperature"},
      {"AP12_top_p_is_text", R"("top_p":"0.5")", "top_p"},
      {"AP12_min_p_is_nan", R"("min_p":NaN)", ""},
      {"AP12_penalty_beyond_numbers", R"("presence_penalty":1e400)", ""},
      {"AP11_temperature_below", R"("temperature":-0.1)", "temperature"},
      {"AP11_temperature_above", R"("temperature":2.1)", "temperature"},
      {"AP13_top_p_zero", R"("top_p":0)", "top_p"},
      {"AP13_top_p_above", R"("top_p":1.0001)", "top_p"},
      {"AP13_top_k_below", R"("top_k":-2)", "top_k"},
      {"AP13_top_k_above", R"("top_k":2147483648)", "top_k"},
      {"AP13_min_p_above", R"("min_p":2)", "min_p"},
      {"AP14_presence_penalty", R"("presence_penalty":2.1)", "presence_penalty"},
      {"AP14_frequency_penalty", R"("frequency_penalty":-2.1)", "frequency_penalty"},
      {"AP15_seed_above", R"("seed":18446744073709551616)", "seed"},
      {"AP15_seed_below", R"("seed":-9223372036854775809)", "seed"},
      {"AP15_seed_is_text", R"("seed":"x")", "seed"},
      {"AP08_none", R"("n":0)", "n"},
      {"AP08_below", R"("n":-1)", "n"},
      {"AP08_above", R"("n":129)", "n"},
      {"AP08_far_above", R"("n":1000000000)", "n"},
      {"AP17_many_biases", R"("logit_bias":{)" + repeated(200'000, R"("#":1)") + "}", "logit_bias"},
      {"AP17_negative_token", R"("logit_bias":{"-1":1})", "logit_bias"},
      {"AP17_no_token", R"("logit_bias":{"abc":1})", "logit_bias"},
      {"AP17_large_bias", R"("logit_bias":{"5":101})", "logit_bias.5"},
      {"AP17_bias_is_nan", R"("logit_bias":{"5":NaN})", ""},
      {"AP19_min_tokens_below", R"("min_tokens":-1)", "min_tokens"},
      {"AP20_no_such_token", R"("min_tokens":2,"stop_token_ids":[999999])", "stop_token_ids[0]"},
      {"AP20_negative_token", R"("stop_token_ids":[-1])", "stop_token_ids[0]"},
      {"AP21_many_stops", "\"stop\":[" + repeated(17, R"("x")") + "]", "stop"},
      {"AP21_empty_stop", R"("stop":"")", "stop"},
      {"AP21_empty_among_stops", R"("stop":["a",""])", "stop[1]"},
      {"AP21_long_stop", "\"stop\":" + megabyte, "stop"},
      {"AP21_nested_stop", R"("stop":[["a"]])", "stop[0]"},
      {"AP22_allowed_token_ids", R"("allowed_token_ids":[])", "allowed_token_ids"},
      {"AP22_bad_words", R"("bad_words":"x")", "bad_words"},
      {"AP27_stream_options", R"("stream_options":{"include_usage":true})", "stream_options"},
      {"AP29_user", "\"user\":" + megabyte, "user"},
      {"AP29_prompt_cache_key", "\"prompt_cache_key\":" + megabyte, "prompt_cache_key"},
      {"AP29_cache_salt", "\"cache_salt\":" + megabyte, "cache_salt"},
      {"AP28_safety_identifier", "\"safety_identifier\":\"" + std::string(65, 's') + "\"",
       "safety_identifier"},
      {"AP28_long_key", "\"metadata\":{\"" + std::string(65, 'k') + "\":\"v\"}", "metadata"},
      {"AP28_long_value", "\"metadata\":{\"k\":\"" + std::string(513, 'v') + "\"}", "metadata"},
      {"AP28_many_pairs", "\"metadata\":{" + repeated(17, R"("k#":"v")") + "}", "metadata"},
      {"AP30_n_keep", R"("n_keep":-3)", "n_keep"},
      {"AP30_n_discard", R"("n_discard":-3)", "n_discard"},
      {"AP30_n_cache_reuse", R"("n_cache_reuse":-3)", "n_cache_reuse"},
      {"AP35_far_above", R"("priority":1000000000)", "priority"},
      {"AP35_words", R"("priority":"high")", "priority"},
      {"HM18_template", R"("chat_template":"{{ messages }}")", "chat_template"},
  };
  std::vector<CatalogueRow> rows;
  for (CatalogueRow row : members) {
    row.body = head + row.body + tail;
    rows.push_back(std::move(row));
  }
  return rows;
}

inline std::vector<CatalogueRow> joined(std::vector<CatalogueRow> some,
                                        const std::vector<CatalogueRow>& more) {
  some.insert(some.end(), more.begin(), more.end());
  return some;
}

}  // namespace pelton::server
