// What a player hears of sound that comes over a network: it begins `buffer` seconds of sound after
// the first came, plays at the speed of sound, and waits whenever it has none left. A value.
#pragma once

namespace pelton::bench {

class PlayedStream {
 public:
  // `buffer_s`: so much sound is there before it begins (or all there is, if less comes).
  explicit PlayedStream(double buffer_s) : buffer_s_(buffer_s) {}

  // `sound_s` more seconds of it have come, at `at_s` on any clock that does not go back.
  void arrive(double at_s, double sound_s);

  // Seconds of sound that have come.
  double sound_s() const { return sound_s_; }
  // How often it had none left and more came, and how long it waited then in all.
  int underruns() const { return underruns_; }
  double waited_s() const { return waited_s_; }

 private:
  const double buffer_s_;
  double sound_s_ = 0.0;
  bool plays_ = false;
  double ends_at_s_ = 0.0;  // when all that has come will have been played
  double held_s_ = 0.0;     // has come before it plays
  int underruns_ = 0;
  double waited_s_ = 0.0;
};

}  // namespace pelton::bench
