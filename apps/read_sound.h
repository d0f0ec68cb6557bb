// The process that decodes one file of a foreign format (`pelton read-sound`), which a server or
// `pelton transcribe` starts with the file as its input (media/sound_reader.h). No verb: nobody
// types it, and it has neither flags nor help.
#pragma once

namespace pelton::apps {

bool is_sound_child(int count, char** words);
// The exit code.
int read_sound(char** words);

}  // namespace pelton::apps
