#include "prompt/chat_conversation.h"

#include <string>

#include <gtest/gtest.h>

#include "api/chat_request.h"
#include "chat/harmony_conversation.h"
#include "chat/harmony_renderer.h"

namespace pelton::prompt {
namespace {

// The messages after the system message, as text.
std::string rendered(const std::string& body) {
  const auto request = api::parse_chat_request(body, {.vocab_size = 1000});
  EXPECT_TRUE(request.ok()) << (request.ok() ? "" : request.error().message);
  if (!request.ok()) return "";
  const std::string text =
      chat::render_text(chat::harmony_conversation(conversation_of(*request, "2025-06-28")), {});
  const size_t system_end = text.find("<|end|>");
  EXPECT_NE(text.find("Current date: 2025-06-28"), std::string::npos);
  return text.substr(system_end + 7);
}

TEST(ChatConversation, JoinsInstructions) {
  EXPECT_EQ(rendered(R"({"messages":[{"role":"system","content":"One."},
                         {"role":"user","content":"hi","name":"ann"},
                         {"role":"developer","content":"Two."}]})"),
            "<|start|>developer<|message|># Instructions\n\nOne.\n\nTwo.<|end|>"
            "<|start|>user:ann<|message|>hi<|end|><|start|>assistant");
}

TEST(ChatConversation, EmptyInstructionsAreNone) {
  EXPECT_EQ(rendered(R"({"messages":[{"role":"system","content":""},
                         {"role":"user","content":"hi"}]})"),
            "<|start|>user<|message|>hi<|end|><|start|>assistant");
}

TEST(ChatConversation, DropsReasoningBeforeTheLastAnswer) {
  EXPECT_EQ(rendered(R"({"messages":[{"role":"user","content":"a"},
                         {"role":"assistant","content":"b","reasoning_content":"past"},
                         {"role":"user","content":"c"}]})"),
            "<|start|>user<|message|>a<|end|>"
            "<|start|>assistant<|channel|>final<|message|>b<|end|>"
            "<|start|>user<|message|>c<|end|><|start|>assistant");
}

TEST(ChatConversation, PutsEachResultBehindItsCall) {
  EXPECT_EQ(rendered(R"({"messages":[{"role":"user","content":"q"},
        {"role":"assistant","content":"Wait.","reasoning":"now","tool_calls":[
          {"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},
          {"id":"2","type":"function","function":{"name":"python","arguments":"1+1"}}]},
        {"role":"tool","tool_call_id":"2","content":"two"},
        {"role":"tool","tool_call_id":"1","content":"one"}]})"),
            "<|start|>user<|message|>q<|end|>"
            "<|start|>assistant<|channel|>analysis<|message|>now<|end|>"
            "<|start|>assistant<|channel|>commentary<|message|>Wait.<|end|>"
            "<|start|>assistant to=functions.f<|channel|>commentary "
            "<|constrain|>json<|message|>{}<|call|>"
            "<|start|>functions.f to=assistant<|channel|>commentary<|message|>one<|end|>"
            "<|start|>assistant to=python<|channel|>analysis code<|message|>1+1<|call|>"
            "<|start|>python to=assistant<|channel|>analysis<|message|>two<|end|>"
            "<|start|>assistant");
}

// Whatever the model's own tools are called.
TEST(ChatConversation, ADeclaredFunctionIsAFunction) {
  const std::string history = R"({"messages":[{"role":"user","content":"q"},
        {"role":"assistant","tool_calls":[
          {"id":"1","type":"function","function":{"name":"python","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"1","content":"one"},
        {"role":"assistant","tool_calls":[
          {"id":"2","type":"function","function":{"name":"browser.open","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"2","content":"two"}],"tools":[
        {"type":"function","function":{"name":"browser.open"}},
        {"type":"function","function":{"name":"python"}}])";
  const std::string some = R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[)"
                           R"({"type":"function","function":{"name":"browser.open"}}]}})";
  for (const std::string& choice : {std::string(R"("auto")"), std::string(R"("none")"), some}) {
    const std::string text = rendered(history + ",\"tool_choice\":" + choice + "}");
    EXPECT_EQ(
        text.substr(text.find("q<|end|>")),
        "q<|end|>"
        "<|start|>assistant to=functions.python<|channel|>commentary "
        "<|constrain|>json<|message|>{}<|call|>"
        "<|start|>functions.python to=assistant<|channel|>commentary<|message|>one<|end|>"
        "<|start|>assistant to=functions.browser.open<|channel|>commentary "
        "<|constrain|>json<|message|>{}<|call|>"
        "<|start|>functions.browser.open to=assistant<|channel|>commentary<|message|>two<|end|>"
        "<|start|>assistant")
        << choice;
  }
}

TEST(ChatConversation, OffersFunctions) {
  const std::string text = rendered(R"({"messages":[{"role":"user","content":"q"}],
      "tools":[{"type":"function","function":{"name":"f","description":"Does."}}]})");
  EXPECT_NE(text.find("// Does.\ntype f = () => any;"), std::string::npos) << text;
  const std::string none = rendered(R"({"messages":[{"role":"user","content":"q"}],
      "tool_choice":"none","tools":[{"type":"function","function":{"name":"f"}}]})");
  EXPECT_EQ(none.find("type f"), std::string::npos);
}

}  // namespace
}  // namespace pelton::prompt
