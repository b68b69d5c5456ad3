/**
 * One hold on a VM's console, through the API: what is typed goes there, what the guest writes
 * comes back.
 *
 * Each piece that is typed has a number, so that the guest reads each key once and in order,
 * even if an answer is lost.
 */
import { get, Problem, send, sendLast } from "../api/client";
import { session } from "../api/session";
import type { ConsoleSessionOutput, ConsoleSession } from "../api/types";

export interface Heard {
  output: (bytes: Uint8Array) => void;
  /** Between the guest's words: what became of the console, in ours. */
  notice: (words: string) => void;
  /** It is over; null: because it was left. */
  ended: (why: string | null) => void;
}

const WAIT_S = 5;
const AGAIN_MS = 200;
/** How long an API or a worker that is away is waited for. */
const AWAY_MS = 60_000;
const PIECE_BYTES = 1024;
/** A guest may ask its terminal so much that the answers pile up; a person never does. */
const MAX_UNSENT_BYTES = 65_536;

export class Typing {
  #path = "";
  /** It is closed with what it was opened with: leaving may be logging out. */
  readonly #token = session.token ?? "";
  #over = false;
  #unsent: number[] = [];
  #number = 1;
  #sends = false;

  private constructor(private readonly heard: Heard) {}

  /** Take hold; `force`: from whoever has it. */
  static async begin(vm: string, force: boolean, heard: Heard): Promise<Typing> {
    const found = new Typing(heard);
    const path = `vms/${vm}/console/sessions`;
    const made = await send<ConsoleSession>("POST", path, { body: { force } });
    found.#path = `${path}/${made.id}`;
    void found.#read();
    return found;
  }

  type(bytes: Uint8Array): void {
    if (this.#over) return;
    if (this.#unsent.length + bytes.length > MAX_UNSENT_BYTES) {
      // What a person pasted; answers of the terminal are short.
      if (bytes.length > PIECE_BYTES) this.heard.notice(`${bytes.length} bytes are too many at once and were not sent`);
      return;
    }
    this.#unsent.push(...bytes);
    if (!this.#sends) void this.#send();
  }

  leave(): void {
    if (this.#over) return;
    this.#end(null);
    sendLast("DELETE", this.#path, this.#token);
  }

  async #send(): Promise<void> {
    this.#sends = true;
    const since = new Away();
    while (!this.#over && this.#unsent.length) {
      const piece = this.#unsent.slice(0, PIECE_BYTES);
      const body = { content: btoa(String.fromCharCode(...piece)) };
      try {
        await send("PUT", `${this.#path}/input/${this.#number}`, { body });
        this.#unsent.splice(0, piece.length);
        this.#number += 1;
        since.back();
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        // 409: it is full or over, which the reader finds out.
        if (!(problem.passes || problem.status === 409) || since.tooLong) this.#end(problem.message);
        await pause(AGAIN_MS);
      }
    }
    this.#sends = false;
  }

  async #read(): Promise<void> {
    let after = 0;
    let last = "waiting";
    let attachedAt = performance.now();
    const since = new Away();
    while (!this.#over) {
      const askedAt = performance.now();
      let said: ConsoleSessionOutput;
      try {
        said = await get<ConsoleSessionOutput>(this.#path, { after, wait_s: WAIT_S });
        since.back();
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        if (!problem.passes || since.tooLong) this.#end(problem.message);
        await pause(AGAIN_MS * 5);
        continue;
      }
      if (this.#over) return;
      const { state, reason } = said.session;
      if (last === "waiting" && state === "attached") this.heard.notice("attached");
      if (last === "attached" && state === "waiting") this.heard.notice(`detached: ${reason ?? "?"}`);
      if (state === "attached") attachedAt = performance.now();
      last = state;
      if (said.start > after) {
        this.heard.notice(`${said.start - after} bytes arrived too fast and are not shown`);
      }
      if (said.content) this.heard.output(Uint8Array.from(atob(said.content), (each) => each.charCodeAt(0)));
      after = said.end;
      if (state === "ended") this.#end(reason ?? "the session is over");
      else if (performance.now() - attachedAt > AWAY_MS) {
        this.leave();
        this.heard.ended(`no worker attached the console within ${AWAY_MS / 1000} s${reason ? `: ${reason}` : ""}`);
      } else if (!said.content && performance.now() - askedAt < AGAIN_MS) await pause(AGAIN_MS);
    }
  }

  #end(why: string | null): void {
    if (this.#over) return;
    this.#over = true;
    this.heard.ended(why);
  }
}

/** How long the other side has not answered. */
class Away {
  #since: number | null = null;

  back(): void {
    this.#since = null;
  }

  get tooLong(): boolean {
    this.#since ??= performance.now();
    return performance.now() - this.#since > AWAY_MS;
  }
}

const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
