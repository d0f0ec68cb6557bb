// What a process holds of its machine, as GET /debug/ledger says it.
import { fact, grouped } from "./dom";
import { Row } from "./feed";
import { say, words } from "./words";

const w = words.ledger;

export const megabytes = (bytes: number) => say(w.megabytes, { count: grouped(bytes / 1e6) });

export function ledger_facts(process: Row): HTMLElement[] {
  return [fact(w.descriptors, say(w.of, { some: grouped(process.descriptors.count), all: grouped(process.descriptors.max) })),
    fact(w.threads, grouped(process.threads.count)), fact(w.resident, megabytes(process.resident_bytes)), fact(w.peak, megabytes(process.resident_peak_bytes)),
    fact(w.heap, megabytes(process.heap.used_bytes))];
}
