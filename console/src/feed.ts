// What the pages of a fleet know: fifteen minutes of samples and tables as they stand, by one stream for all of them.
import { Follower } from "./follower";

export const kMinutes = 15;

// A sample of a gateway's or an autoscaler's (src/gateway/fleet_sampler.h, src/launch/scaler_pages.h); the latter has replicas only.
export type Sample = {
  n: number; at: number; open?: number; waiting?: number; retries?: number; moves?: number; interrupted?: number; unserved?: number;
  ended?: Record<string, number>;
  pools?: Record<string, { workers: number; ready: number; running: number; waiting: number }>;
  replicas?: Record<string, { desired: number; ready: number; starting: number; leaving: number }>;
};
export type Row = Record<string, any>;
type News = { n: number; samples: Sample[]; tables: Record<string, { all: boolean; rows: Row[] }> };

// What a row is known by.
const kKeys: Record<string, (row: Row) => string> = {
  workers: (row) => `${row.name} ${row.address}`, requests: (row) => row.pool, scaling: (row) => row.pool, decisions: (row) => String(row.n), commands: (row) => String(row.n),
};

export interface View {
  readonly element: HTMLElement;
  draw(feed: FleetFeed): void;
}

export class FleetFeed {
  samples: Sample[] = [];
  private last = 0;
  private readonly tables = new Map<string, Map<string, Row>>();
  private readonly views: View[] = [];
  private readonly follower: Follower;
  private frame = 0;

  constructor(ask_key: (wrong: boolean) => Promise<void>) {
    this.follower = new Follower("console/fleet", () => this.last, (data) => this.take(data as News),
      () => this.views.some((view) => view.element.isConnected), ask_key);
  }

  get state(): HTMLElement {
    return this.follower.state;
  }
  add(view: View): void {
    this.views.push(view);
  }
  // A view has come into the page.
  show(): void {
    this.follower.start();
    this.draw();
  }
  stop(): void {
    this.follower.stop();
  }
  table(name: string): Map<string, Row> {
    return this.tables.get(name) ?? new Map();
  }

  private take(news: News): void {
    // Numbers that begin anew are another start of the server.
    const first = news.samples[0]?.n ?? news.n;
    if (first <= this.last) this.samples = [];
    this.last = news.n;
    this.samples.push(...news.samples);
    this.samples.splice(0, this.samples.length - kMinutes * 60);
    for (const [name, { all, rows }] of Object.entries(news.tables)) {
      const known = all ? new Map<string, Row>() : (this.tables.get(name) ?? new Map<string, Row>());
      for (const row of rows) known.set((kKeys[name] ?? String)(row), row);
      this.tables.set(name, known);
    }
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  private draw(): void {
    if (this.samples.length === 0) return;
    for (const view of this.views) if (view.element.isConnected) view.draw(this);
  }
}
