// A conversation in a terminal, or one call for a script:
//   pelton_client_example URL [--key KEY] chat TEXT | stream TEXT | chain NAME INPUT |
//                         events NAME INPUT | models
// "stream" with --stop-after N ends the answer behind N pieces.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "pelton_client.h"

namespace {

using namespace pelton::client;  // NOLINT: a program of one file

int run(Client& client, const std::vector<std::string>& words, int stop_after) {
  const std::string& what = words[0];
  if (what == "models") {
    for (const std::string& name : client.models()) std::cout << name << '\n';
    return 0;
  }
  if (words.size() < 2) return 2;
  const ChatRequest request{.messages = {{"user", words[1]}}, .temperature = 0};
  if (what == "chat") {
    const Answer answer = client.chat(request);
    std::cout << answer.text << '\n';
    std::cerr << answer.usage.completion_tokens << " tokens, " << answer.finish_reason << '\n';
    return 0;
  }
  if (what == "stream") {
    int pieces = 0;
    const Answer answer = client.stream(request, [&](const Delta& delta) {
      std::cout << delta.text << std::flush;
      return stop_after == 0 || ++pieces < stop_after;
    });
    std::cout << '\n';
    std::cerr << answer.usage.completion_tokens << " tokens, "
              << (answer.finish_reason.empty() ? "ended here" : answer.finish_reason) << '\n';
    return 0;
  }
  if (words.size() < 3) return 2;
  if (what == "chain") {
    std::cout << client.chain(words[1], words[2]).output << '\n';
    return 0;
  }
  const ChainRun run =
      client.chain(words[1], words[2], [](std::string_view event, std::string_view) {
        std::cerr << event << '\n';
        return true;
      });
  std::cout << run.output << '\n';
  return 0;
}

}  // namespace

int main(int count, char** words) {
  std::vector<std::string> rest(words + 1, words + count);
  Options options{.url = rest.empty() ? "" : rest[0]};
  int stop_after = 0;
  if (!rest.empty()) rest.erase(rest.begin());
  while (rest.size() > 2 && rest[0].starts_with("--")) {
    if (rest[0] == "--key") options.api_key = rest[1];
    if (rest[0] == "--stop-after") stop_after = std::atoi(rest[1].c_str());
    if (rest[0] == "--retries") options.retries = std::atoi(rest[1].c_str());
    if (rest[0] == "--timeout-ms") {
      options.timeout = std::chrono::milliseconds(std::atoi(rest[1].c_str()));
    }
    rest.erase(rest.begin(), rest.begin() + 2);
  }
  if (rest.empty()) {
    std::cerr << "usage: pelton_client_example URL [--key KEY] chat TEXT | stream TEXT | "
                 "chain NAME INPUT | events NAME INPUT | models\n";
    return 2;
  }
  try {
    Client client(options);
    return run(client, rest, stop_after);
  } catch (const Error& error) {
    std::cerr << error.what() << " (status " << error.status() << ", code '" << error.code()
              << "')\n";
    return 1;
  }
}
