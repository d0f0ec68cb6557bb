// A conversation as Harmony has it: each part of a turn is a message on its channel. A pure
// function; any thread.
#pragma once

#include "chat/conversation.h"
#include "chat/harmony_message.h"

namespace pelton::chat {

// `conversation` as the model made it: each call is followed by its results, where the client has
// them behind several calls. Past analysis is dropped.
HarmonyConversation harmony_conversation(Conversation conversation);

// What the cookbook asks for: an analysis message (one without a recipient) by the assistant that
// stands before the last final message is never shown to the model again. Analysis of the open turn
// (since the last final) stays, as its tool calls would be senseless without it.
void drop_past_analysis(HarmonyConversation& conversation);

}  // namespace pelton::chat
