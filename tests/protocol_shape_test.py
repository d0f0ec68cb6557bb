#!/usr/bin/env python3
"""The server's protocol tests (chat, Responses, Messages, gRPC, tools, structured output, ...) once more, over a model of
Qwen3's shape that says what their scripts say in its own spelling (src/server/test_shape.h).

usage: protocol_shape_test.py SERVER_TEST

Only under PELTON_FULL=1; otherwise exit code 77 (skipped). What is left out, by why:
"""
import os
import subprocess
import sys

LEFT_OUT = {
    "about Harmony's turns, markup and control tokens": """
        At/CatalogueHarmony.HM08* At/CatalogueHarmony.HM09* At/CatalogueHarmony.HM11* At/CatalogueHarmony.HM16* *.HM15_*
        Injection.* ResponseConversationTest.* Responses.HM_0* Responses.AnEmptyMessageDoesNotHideWhatWasSaidInAnothersName
        Responses.SomethingIsAlwaysSeen Server.NothingTheModelWritesIsAnError Server.ControlTokensInPromptsNeedLeave
        Extras.ATextShowsItsMarks Extras.ToolChoiceNoneIsNoCall Grpc.NothingACallerWritesIsAControlToken Messages.AnInputThatIsNoJsonStillComes
        Generate.ARenderedChatIsAnsweredAsTheChatIs""",
    "the script goes on from a header that a forced call opens in Harmony, or waits for its words": """
        *.ToolChoiceMakesTheModelCall LegacyFunctions.B7_function_call_is_obeyed Generate.AForcedCallIsPartOfTheRenderedPrompt
        RequestFields.D6_a_constraint_beside_a_forced_call_is_refused MessagesClients.B4_TheModelCallsWhatWasLoaded
        OmittedThinking.ComesBackByItsSignature Ollama.CallsHaveTheirArgumentsAsAnObject
        JsRows.JS_05_ToolsWithABrokenSchema ApiParameters.C_ASchemaThatIsTooLongIsNamed""",
    "numbers of tokens, ids and ends of the other vocabulary": """
        *AP18* BeamCompletion.AStopTokenEndsABeam BeamCompletion.EveryPromptHasItsOwn Bodies/DocumentedObjects.D6* DocumentedFields.D6_fields_where_they_stand
        DocumentedFields.D6_members_that_change_nothing_are_no_reason_to_refuse Embeddings.PoolingChangesThem
        Embeddings.RefusesWhatItCannotObey Extras.NoTokensMeansThePromptAlone Extras.ReasoningKeepsToItsBudget
        Extras.RepetitionEndsAnAnswer Extras.TellsTokens Extras.TokenizesAChatThatBeginsNoAnswer Grpc.TextAndTokens PromptTruncation.*
        RequestFields.D6_the_page_says_what_a_server_does_with_each Rerank.* Responses.WholeAndStreamed SdkFields.each_is_obeyed_let_be_told_of_or_refused
        Server.ChatsWholeAndStreamed Server.RefusesBadRequestsAsOpenAiDoes Server.SeveralAnswersToOnePrompt
        SeveralModels.EveryApiChoosesByName""",
    "its vocabulary has runs of letters: a forced text is more than one row of tokens, and a jump writes the tokenizer's": """
        StructuredOutput.JumpsChangeNoCount""",
}


def main():
    if os.environ.get("PELTON_FULL") != "1":
        print("protocol_shape: only with PELTON_FULL=1", file=sys.stderr)
        return 77
    left_out = ":".join(name for names in LEFT_OUT.values() for name in names.split())
    done = subprocess.run([sys.argv[1], "--gtest_brief=1", f"--gtest_filter=-{left_out}"],
                          env=os.environ | {"PELTON_TEST_SHAPE": "qwen3"}, capture_output=True, text=True, timeout=1100)
    print((done.stdout + done.stderr)[-6000:])
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
