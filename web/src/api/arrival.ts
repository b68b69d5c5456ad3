/** What an address brought that logs in. Read first of all, and taken out of address and history at once. */
import { Store } from "../store";

/** A code of a one-time link; with a verifier, the provider's. Or why there is none. */
export type Arrival = { code: string; verifier?: string; redirect_uri?: string } | { refused: string };

/** What is not exchanged yet. */
export const arrived = new Store<Arrival | null>(null);

/** A login at the provider that began in this tab. */
export interface Pending {
  state: string;
  verifier: string;
  redirect_uri: string;
  /** Where the page was. */
  back: string;
}

const PENDING_AS = "fuga.login";
const LINK = /^#login=([!-~]{1,512})$/;

export function remember(pending: Pending): void {
  sessionStorage.setItem(PENDING_AS, JSON.stringify(pending));
}

/** A pending login serves one answer, whatever that is. */
function forget(): Pending | null {
  const kept = sessionStorage.getItem(PENDING_AS);
  sessionStorage.removeItem(PENDING_AS);
  return kept === null ? null : (JSON.parse(kept) as Pending);
}

function take(): void {
  const link = LINK.exec(location.hash)?.[1];
  if (link !== undefined) {
    leaveAddress("#/");
    arrived.set({ code: link });
    return;
  }
  const answer = answerOf(location.hash.slice(1)) ?? answerOf(location.search.slice(1));
  if (answer === null) return;
  const pending = forget();
  const ours = pending !== null && pending.state === answer.get("state");
  leaveAddress(ours ? pending.back : "#/");
  arrived.set(ours ? toExchange(pending, answer) : { refused: NOT_OURS });
}

const NOT_OURS = "The provider's answer is of no login that began in this tab. Begin again.";

/** The provider answers with `code` or `error`, and the `state` that it was sent. */
function answerOf(text: string): URLSearchParams | null {
  if (text.startsWith("/")) return null; // a view
  const answer = new URLSearchParams(text);
  return answer.has("state") && (answer.has("code") || answer.has("error")) ? answer : null;
}

function toExchange(pending: Pending, answer: URLSearchParams): Arrival {
  const code = answer.get("code");
  if (code) return { code, verifier: pending.verifier, redirect_uri: pending.redirect_uri };
  const why = answer.get("error") ?? "";
  return { refused: `The provider refused the login (${/^[a-z_]{1,40}$/.test(why) ? why : "no reason"}).` };
}

/** This entry of the history is a view from now on: going back does not bring the code again. */
function leaveAddress(view: string): void {
  history.replaceState(null, "", location.pathname + view);
}

take();
// A link that is opened in a tab with the page reloads nothing. Who hears of it next reads what is left.
addEventListener("hashchange", take);
