#include "apps/load_flags.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "apps/input.h"
#include "apps/server_address.h"
#include "base/machine.h"
#include "bench/token_words.h"
#include "report/percentile.h"

namespace pelton::apps {
namespace {

using cli::Flag;

std::vector<std::pair<std::string_view, std::string_view>> sampling_keys() {
  return {{"--temperature", "temperature"},
          {"--top-p", "top_p"},
          {"--top-k", "top_k"},
          {"--min-p", "min_p"},
          {"--frequency-penalty", "frequency_penalty"},
          {"--presence-penalty", "presence_penalty"},
          {"--repetition-penalty", "repetition_penalty"}};
}

Result<bench::Target> read_target(const cli::Arguments& arguments) {
  TRY_ASSIGN(bench::Target target,
             server_target(arguments, {.backend = arguments.text("--backend"),
                                       .base_url = {},
                                       .endpoint = arguments.text("--endpoint"),
                                       .model = arguments.text("--model"),
                                       .headers = {}}));
  if (arguments.has("--served-model-name")) target.model = arguments.text("--served-model-name");
  return target;
}

Result<bench::QuestionOptions> read_question(const cli::Arguments& arguments) {
  bench::QuestionOptions question;
  question.ignore_eos = arguments.has("--ignore-eos") || is_invented(arguments);
  question.rerank_documents = static_cast<int>(arguments.integer("--rerank-documents"));
  for (const auto& [flag, key] : sampling_keys()) {
    if (!arguments.has(flag)) continue;
    const double number = arguments.number(flag);
    const bool whole = flag == "--top-k";
    question.sampling.push_back(
        {std::string(key), whole ? Json(static_cast<int64_t>(number)) : Json(number)});
  }
  if (arguments.has("--logprobs")) {
    const int64_t count = arguments.integer("--logprobs");
    if (arguments.text("--backend") == "openai-chat") {
      question.sampling.push_back({"logprobs", true});
      question.sampling.push_back({"top_logprobs", count});
    } else {
      question.sampling.push_back({"logprobs", count});
    }
  }
  if (arguments.has("--extra-body")) {
    Result<Json> extra = Json::parse(arguments.text("--extra-body"));
    if (!extra || !extra->is_object()) {
      return Error{ErrorCode::kInvalidArgument, "--extra-body wants a JSON object", "extra_body"};
    }
    question.extra = std::move(*extra);
  }
  if (arguments.has("--chat-template-kwargs")) {
    Result<Json> given = Json::parse(arguments.text("--chat-template-kwargs"));
    if (!given || !given->is_object()) {
      return Error{ErrorCode::kInvalidArgument, "--chat-template-kwargs wants a JSON object",
                   "chat_template_kwargs"};
    }
    if (question.extra.find("chat_template_kwargs") != nullptr) {
      return Error{
          ErrorCode::kInvalidArgument,
          "--extra-body has chat_template_kwargs, too: give them by --chat-template-kwargs "
          "or there",
          "chat_template_kwargs"};
    }
    question.extra.set("chat_template_kwargs", std::move(*given));
  }
  return question;
}

Result<workload::Arrivals> read_arrivals(const cli::Arguments& arguments) {
  workload::Arrivals arrivals;
  TRY_ASSIGN(arrivals.rate, workload::parse_rate(arguments.text("--request-rate"), "request_rate"));
  arrivals.burstiness = arguments.number("--burstiness");
  arrivals.seed = static_cast<uint64_t>(arguments.integer("--seed"));
  if (arguments.has("--ramp-up-strategy")) {
    if (!arguments.has("--ramp-up-start-rps") || !arguments.has("--ramp-up-end-rps")) {
      return Error{ErrorCode::kInvalidArgument,
                   "--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps", "ramp_up"};
    }
    const bool linear = arguments.text("--ramp-up-strategy") == "linear";
    arrivals.ramp = workload::Ramp{
        .shape = linear ? workload::Ramp::Shape::kLinear : workload::Ramp::Shape::kExponential,
        .start_rps = arguments.number("--ramp-up-start-rps"),
        .end_rps = arguments.number("--ramp-up-end-rps")};
  }
  if (arguments.has("--day-swing")) {
    arrivals.day = workload::Day{.swing = arguments.number("--day-swing"),
                                 .period_s = arguments.number("--day-period")};
  }
  return arrivals;
}

bench::LoadOptions read_load(const cli::Arguments& arguments) {
  bench::LoadOptions load;
  if (arguments.has("--max-concurrency")) {
    load.max_concurrency = static_cast<int>(arguments.integer("--max-concurrency"));
  }
  load.client_threads = static_cast<int>(arguments.integer("--client-threads"));
  load.quiet_time_max =
      std::chrono::milliseconds(static_cast<int64_t>(arguments.number("--timeout-sec") * 1000));
  load.keep_texts = arguments.has("--save-detailed");
  load.request_id_prefix = arguments.text("--request-id-prefix");
  load.models = arguments.list("--lora-modules");
  return load;
}

// With --lora-assignment random each request's adapter is drawn, by --lora-skew; the generator
// takes a list in turn.
void draw_adapters(const cli::Arguments& arguments, size_t requests, bench::LoadOptions& load) {
  if (load.models.empty() || arguments.text("--lora-assignment") != "random") return;
  workload::Draws draws(static_cast<uint64_t>(arguments.integer("--seed")), 0x6C6F7261);
  const std::vector<std::string> adapters = load.models;
  load.models.clear();
  const workload::SkewedChoice choice(adapters.size(), arguments.number("--lora-skew"));
  for (size_t i = 0; i < requests; ++i) load.models.push_back(adapters[choice.at(draws.unit())]);
}

Result<report::Shown> read_shown(const cli::Arguments& arguments) {
  report::Shown shown;
  const std::string& words = arguments.text("--percentile-metrics");
  for (size_t at = 0; at <= words.size();) {
    const size_t comma = std::min(words.find(',', at), words.size());
    const std::string word = words.substr(at, comma - at);
    const std::optional<report::Metric> metric = report::find_metric(word);
    if (!metric) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--percentile-metrics knows no '{}'", word), "percentile_metrics"};
    }
    shown.metrics.push_back(*metric);
    at = comma + 1;
  }
  TRY_ASSIGN(shown.percents,
             report::parse_percents(arguments.text("--metric-percentiles"), "metric_percentiles"));
  return shown;
}

Result<workload::Vocabulary> read_vocabulary(const cli::Arguments& arguments, LoadPlan& plan) {
  const std::string& name = arguments.text("--tokenizer");
  if (name.empty()) return workload::Vocabulary();
  TRY_ASSIGN(tokenizer::Tokenizer tokenizer, load_tokenizer(name));
  plan.tokenizer = std::make_unique<tokenizer::Tokenizer>(std::move(tokenizer));
  plan.info.tokenizer = name;
  return bench::token_words(*plan.tokenizer);
}

// Of a data set whose requests all ask for the same.
void set_lengths(LoadPlan& plan) {
  const workload::Turn& first = plan.conversations.front().turns.front();
  plan.info.input_len = std::max(first.prompt_tokens, 0);
  plan.info.output_len = first.output_tokens;
}

Result<void> fill_info(const cli::Arguments& arguments, LoadPlan& plan) {
  report::RunInfo& info = plan.info;
  info.date = fmt::format("{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)));
  info.backend = plan.target.backend_name;
  info.endpoint = plan.target.call.target;
  info.base_url = plan.target.base_url;
  info.label = arguments.text("--label");
  info.model = arguments.has("--model") ? arguments.text("--model") : plan.target.model;
  info.dataset = arguments.text("--dataset-name");
  info.num_prompts = static_cast<int64_t>(plan.conversations.size());
  info.request_rate = plan.arrivals.rate;
  info.burstiness = plan.arrivals.burstiness;
  info.max_concurrency = plan.load.max_concurrency;
  info.hardware = fmt::format("generator: {} cores, {:.0f} GiB", base::usable_cpus().size(),
                              static_cast<double>(base::memory_limit_bytes()) / (1 << 30));
  for (const std::string& pair : arguments.list("--metadata")) {
    TRY_ASSIGN(auto parsed, bench::parse_pair(pair, "metadata"));
    info.metadata.insert(std::move(parsed));
  }
  info.documents_each =
      bench::answer_limits(plan.target, plan.question, plan.conversations.front().turns.front())
          .documents;
  set_lengths(plan);
  return {};
}

std::vector<Flag> server_flags() {
  Flag backend = text_flag("--backend", "NAME", "which of OpenAI's dialects", "openai");
  backend.choices = {"openai",     "vllm", "openai-chat", "openai-responses", "openai-embeddings",
                     "vllm-rerank"};
  Flag adapters = text_flag("--lora-modules", "NAME",
                            "models or adapters to ask; --lora-assignment says which");
  adapters.many = true;
  Flag assignment = text_flag("--lora-assignment", "HOW", "which of them a request asks", "random");
  assignment.choices = {"random", "round-robin"};
  assignment.only_with = {{"--lora-modules"}};
  Flag skew = text_flag(
      "--lora-skew", "S",
      "the i-th is asked 1 / i^S times as often as the first: 0 evenly, 1 Zipf's law", "0");
  skew.kind = Flag::Kind::kNumber;
  skew.most = 10;
  skew.only_with = {{"--lora-modules"}};
  std::vector<Flag> flags = {
      std::move(backend),
      text_flag("--endpoint", "PATH", "default that of the backend"),
      text_flag("--model", "NAME", "default the first that the server lists"),
      text_flag("--served-model-name", "NAME",
                "what requests call it; --model then names it "
                "in the result alone"),
      text_flag("--tokenizer", "MODEL",
                "a model's folder or tokenizer file: prompts are then exact to the token"),
      std::move(adapters),
      std::move(assignment),
      std::move(skew)};
  std::vector<Flag> address = server_address_flags();
  flags.insert(flags.begin() + 1, std::make_move_iterator(address.begin()),
               std::make_move_iterator(address.end()));
  return flags;
}

std::vector<Flag> load_shape_flags() {
  Flag ramp = text_flag("--ramp-up-strategy", "SHAPE", "a rate that rises through the run");
  ramp.choices = {"linear", "exponential"};
  Flag rate = text_flag("--request-rate", "RPS", "requests per second; inf: all at once", "inf");
  rate.not_with = {{"--ramp-up-strategy"}, {"--rates"}, {"--dataset-name", {"trace"}}};
  Flag burstiness =
      number_flag("--burstiness", "B", "1 is Poisson, below it comes in bursts", "1", 1e-3, 1e6);
  burstiness.only_with = {{"--request-rate"}, {"--ramp-up-strategy"}, {"--rates"}};
  burstiness.not_with = {{"--dataset-name", {"trace"}}};
  ramp.not_with = {{"--rates"}, {"--dataset-name", {"trace"}}};
  Flag start = number_flag("--ramp-up-start-rps", "RPS", "where the ramp begins", "", 0, 1e6);
  Flag end = number_flag("--ramp-up-end-rps", "RPS", "where it ends", "", 0, 1e6);
  start.only_with = end.only_with = {{"--ramp-up-strategy"}};
  Flag swing = number_flag("--day-swing", "SHARE",
                           "demand rises and falls by this share, as in a day", "", 0, 1);
  swing.only_with = {{"--request-rate"}, {"--rates"}};
  Flag period = number_flag("--day-period", "SECONDS", "how long that day is", "86400", 0.1, 1e7);
  period.only_with = {{"--day-swing"}};
  return {
      std::move(rate),
      std::move(burstiness),
      count_flag("--max-concurrency", "N", "requests at once; default no limit", "", 1, 1e6),
      std::move(ramp),
      std::move(start),
      std::move(end),
      std::move(swing),
      std::move(period),
      count_flag("--num-warmups", "N", "requests before those that count", "0", 0, 1e5),
      number_flag("--ready-check-timeout-sec", "S", "how long the server may take to be ready", "0",
                  0, 86'400),
      number_flag("--timeout-sec", "S", "silence after which a request has failed", "600", 0.1,
                  86'400),
      count_flag("--client-threads", "N", "threads that read answers", "1", 1, 256),
  };
}

std::vector<Flag> question_flags() {
  std::vector<Flag> flags = {
      switch_flag("--ignore-eos", "ignore the EOS token; always on for random datasets"),
      number_flag("--temperature", "T", "default the server's", "", 0, 100),
      number_flag("--top-p", "P", "default the server's", "", 0, 1),
      count_flag("--top-k", "K", "default the server's", "", -1, 1e6),
      number_flag("--min-p", "P", "default the server's", "", 0, 1),
      number_flag("--frequency-penalty", "X", "default the server's", "", -2, 2),
      number_flag("--presence-penalty", "X", "default the server's", "", -2, 2),
      number_flag("--repetition-penalty", "X", "default the server's", "", 0, 10),
      count_flag("--logprobs", "N", "ask for logprobs, with so many alternatives", "", 0, 100),
  };
  for (Flag& flag : flags) flag.not_with = {{"--backend", {"openai-embeddings", "vllm-rerank"}}};
  flags.push_back(count_flag(
      "--rerank-documents", "N",
      "documents of a request: prompts are cut into a query and so many, all about as long", "10",
      1, 1000));
  flags.back().only_with = {{"--backend", {"vllm-rerank"}}};
  flags.push_back(text_flag("--extra-body", "JSON", "members that go into every body"));
  flags.push_back(text_flag("--chat-template-kwargs", "JSON",
                            "arguments of the model's chat template, in every body"));
  flags.back().only_with = {{"--backend", {"openai-chat"}}};
  flags.push_back(
      text_flag("--request-id-prefix", "TEXT", "x-request-id: this and the request's number"));
  return flags;
}

std::vector<Flag> report_flags() {
  Flag goodput = text_flag("--goodput", "K:MS", "objectives: ttft:500 tpot:50 e2el:5000");
  goodput.many = true;
  Flag metadata = text_flag("--metadata", "K=V", "kept in the result");
  metadata.many = true;
  Flag label = text_flag("--label", "TEXT", "begins the result file's name; default the backend");
  label.only_with = metadata.only_with = kept_results();
  std::vector<Flag> flags = {
      std::move(goodput),
      text_flag("--percentile-metrics", "LIST", "metrics to print", "ttft,tpot,itl,e2el"),
      text_flag("--metric-percentiles", "LIST", "of these", "99"),
      std::move(label),
      std::move(metadata),
      switch_flag("--disable-tqdm", "no live progress"),
  };
  // Of vLLM's, so that its scripts run.
  for (Flag other : {switch_flag("--trust-remote-code", "means nothing here"),
                     switch_flag("--skip-tokenizer-init", "means nothing here"),
                     text_flag("--tokenizer-mode", "MODE", "means nothing here")}) {
    other.ignored = true;
    flags.push_back(std::move(other));
  }
  return flags;
}

void append(std::vector<Flag>& flags, std::vector<Flag> more) {
  for (Flag& flag : more) flags.push_back(std::move(flag));
}

}  // namespace

Flag text_flag(std::string name, std::string value, std::string help, std::string fallback) {
  return {.name = std::move(name),
          .value = std::move(value),
          .help = std::move(help),
          .default_text = std::move(fallback)};
}

Flag number_flag(std::string name, std::string value, std::string help, std::string fallback,
                 double least, double most) {
  Flag flag = text_flag(std::move(name), std::move(value), std::move(help), std::move(fallback));
  flag.kind = Flag::Kind::kNumber;
  flag.least = least;
  flag.most = most;
  return flag;
}

Flag count_flag(std::string name, std::string value, std::string help, std::string fallback,
                double least, double most) {
  Flag flag = number_flag(std::move(name), std::move(value), std::move(help), std::move(fallback),
                          least, most);
  flag.kind = Flag::Kind::kSize;
  if (least < 0) flag.kind = Flag::Kind::kInteger;
  return flag;
}

Flag switch_flag(std::string name, std::string help) {
  Flag flag = text_flag(std::move(name), "", std::move(help), "");
  flag.kind = Flag::Kind::kSwitch;
  return flag;
}

std::vector<Flag> load_flags() {
  std::vector<Flag> flags = server_flags();
  append(flags, dataset_flags());
  append(flags, dataset_time_flags());
  append(flags, load_shape_flags());
  append(flags, question_flags());
  append(flags, report_flags());
  append(flags, saving_flags());
  return flags;
}

Result<void> use_workload(const std::string& workload, LoadPlan& plan) {
  TRY_ASSIGN(const workload::WorkloadSpec spec, workload::read_spec(workload));
  workload::Vocabulary vocabulary;
  if (plan.tokenizer != nullptr) {
    TRY_ASSIGN(vocabulary, bench::token_words(*plan.tokenizer));
  }
  TRY_ASSIGN(workload::Workload made, workload::make_workload(spec, vocabulary));
  write_note(made.note);
  plan.conversations = std::move(made.conversations);
  for (size_t i = 0; i < plan.conversations.size(); ++i) {
    plan.conversations[i].at_s = made.at_s[i];
  }
  using Dataset = workload::WorkloadSpec::Dataset;
  if (spec.dataset != Dataset::kShareGpt && spec.dataset != Dataset::kCustom) {
    plan.question.ignore_eos = true;
  }
  if (!plan.load.max_concurrency) plan.load.max_concurrency = spec.concurrency_max;
  plan.info.dataset = spec.name.empty() ? workload : spec.name;
  plan.info.num_prompts = static_cast<int64_t>(plan.conversations.size());
  plan.info.max_concurrency = plan.load.max_concurrency;
  set_lengths(plan);
  return {};
}

Result<LoadPlan> read_load_plan(const cli::Arguments& arguments) {
  LoadPlan plan;
  // What can be wrong without a server is reported before one is asked.
  TRY_ASSIGN(plan.question, read_question(arguments));
  TRY_ASSIGN(plan.arrivals, read_arrivals(arguments));
  TRY_ASSIGN(plan.objectives, report::parse_objectives(arguments.text("--goodput")));
  TRY_ASSIGN(plan.shown, read_shown(arguments));
  plan.load = read_load(arguments);
  plan.ready_s = arguments.number("--ready-check-timeout-sec");
  plan.warmups = static_cast<int>(arguments.integer("--num-warmups"));
  plan.progress = !arguments.has("--disable-tqdm");
  TRY_ASSIGN(plan.target, read_target(arguments));
  TRY_ASSIGN(const workload::Vocabulary vocabulary, read_vocabulary(arguments, plan));
  TRY_ASSIGN(plan.conversations,
             read_dataset(arguments, vocabulary, read_dataset_times(arguments)));
  size_t requests = 0;
  for (const workload::Conversation& one : plan.conversations) requests += one.turns.size();
  draw_adapters(arguments, requests, plan.load);
  TRY(fill_info(arguments, plan));
  return plan;
}

std::vector<cli::Circumstance> kept_results() {
  return {{"--save-result"}, {"--save-detailed"}, {"--result-filename"}, {"--html"}, {"--history"}};
}

std::vector<Flag> saving_flags() {
  Flag fail_if = text_flag("--fail-if", "KEY>N",
                           "exit code 1 if that holds of a number in the result: p99_ttft_ms>500");
  fail_if.many = true;
  Flag folder = text_flag("--result-dir", "FOLDER", "where to", ".");
  folder.only_with = {{"--save-result"}, {"--save-detailed"}, {"--result-filename"}};
  Flag append = switch_flag("--append-result",
                            "add the result to its file, as a line of its own, as vLLM does");
  append.only_with = folder.only_with;
  return {switch_flag("--save-result", "write the result as JSON, named as vLLM does"),
          switch_flag("--save-detailed", "with the times of every request"),
          std::move(append),
          std::move(folder),
          text_flag("--html", "FILE", "a report with plots, whole in one file"),
          text_flag("--history", "FILE", "keep results in this SQLite file, and compare with it"),
          std::move(fail_if)};
}

}  // namespace pelton::apps
