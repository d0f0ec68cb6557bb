// A page's stream of events while somebody looks: begun again behind the last one when it breaks, resting in a hidden tab.
import { ApiError, follow } from "./api";
import { h } from "./dom";
import { say, words } from "./words";

const w = words.live;
const kAgain_ms = 2000;

export class Follower {
  private stopper: AbortController | null = null;
  readonly state = h("p", { class: "state", role: "status" }, w.waiting);

  // `last`: the number of the last event, 0: none yet. `shown`: whether a page that lives of it is there.
  constructor(private readonly path: string, private readonly last: () => number, private readonly take: (data: unknown) => void,
              private readonly shown: () => boolean, private readonly ask_key: (wrong: boolean) => Promise<void>) {
    document.addEventListener("visibilitychange", () => {
      if (!this.shown()) return;
      if (document.hidden) this.stop(w.resting);
      else this.start();
    });
  }

  start(): void {
    if (this.stopper !== null || document.hidden) return;
    this.stopper = new AbortController();
    void this.run(this.stopper.signal);
  }

  stop(why = ""): void {
    this.stopper?.abort();
    this.stopper = null;
    this.say(why);
  }

  private say(text: string): void {
    if (this.state.textContent !== text) this.state.textContent = text;
  }

  private async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        await follow(this.path, this.last(), signal, (data) => {
          this.take(data);
          this.say("");
        });
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof ApiError && error.status === 401) {
          await this.ask_key(true);
          continue;
        }
        this.say(error instanceof ApiError && error.status > 0 ? say(words.failed, { why: error.message }) : w.cut);
      }
      if (signal.aborted) return;
      if (this.last() > 0) this.say(w.cut);
      await new Promise((resolve) => setTimeout(resolve, kAgain_ms));
    }
  }
}
