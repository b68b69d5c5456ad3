/** How a tab gets its token. */
import { useEffect, useRef, useState } from "preact/hooks";
import { type Arrival, arrived } from "./api/arrival";
import { get, Problem, send } from "./api/client";
import { changed } from "./api/live";
import { goToProvider } from "./api/provider";
import { session } from "./api/session";
import type { LoginMethods, LoginProvider, Token, TokenCreated } from "./api/types";
import { useStore } from "./store";
import { ProblemMessage } from "./parts/basics";

const ASKED_AGAIN_MS = 5_000;
const ASK = "Paste a token: the command fuga env prints the one that it uses itself.";

/** Log in by what the address brought, or go on with the token that this tab has. */
export async function resume(): Promise<void> {
  const arrival = arrived.value;
  if (arrival !== null) return enter(arrival);
  const token = session.token;
  if (token === null) {
    session.asks.set(ASK);
    return;
  }
  try {
    session.begin(token, await get<Token>("token"));
    changed();
  } catch (problem) {
    if (!(problem instanceof Problem) || !problem.passes) return; // `session` shows it
    setTimeout(() => void resume(), (problem.retryAfterS ?? 3) * 1000);
  }
}

arrived.subscribe(() => arrived.value !== null && void resume());

/** A link that was agreed to in a tab that was logged in. */
let agreed: Arrival | null = null;

/** Whoever sends somebody a link would have them act as another: that is asked before. */
function mayReplace(arrival: Arrival): boolean {
  const replaces = session.token !== null && arrival !== agreed && "code" in arrival && !("verifier" in arrival);
  if (replaces && !confirm("This link logs this tab in again, as whoever made the link. Go on?")) return false;
  agreed = arrival;
  return true;
}

/** Exchange what was brought for a token. */
async function enter(arrival: Arrival): Promise<void> {
  if (!mayReplace(arrival)) {
    arrived.set(null);
    return resume();
  }
  try {
    if ("refused" in arrival) throw new Problem(401, null, null, arrival.refused);
    const made = await send<TokenCreated>("POST", "login", { body: arrival, token: "" });
    if (made.secret === null) return;
    session.token = made.secret;
    arrived.set(null);
    session.begin(made.secret, await get<Token>("token"));
    changed();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    // A provider's code is good once, even if the answer to it was lost.
    if (problem.passes && !("verifier" in arrival)) {
      setTimeout(() => void resume(), (problem.retryAfterS ?? 3) * 1000);
      return;
    }
    arrived.set(null);
    if (session.token !== null) return resume(); // this tab was logged in before
    session.asks.set(`${problem.message} ${ASK}`);
  }
}

/** The provider of this site, once somebody is asked to log in; null: there is none, or it is not known yet. */
function useProvider(loginRequested: boolean): LoginProvider | null {
  const [provider, set] = useState<LoginProvider | null>(null);
  useEffect(() => {
    if (!loginRequested) return;
    let wanted = true;
    const ask = async (): Promise<void> => {
      try {
        const ways = await get<LoginMethods>("login");
        if (wanted) set(ways.provider);
        if (ways.provider?.problem) setTimeout(() => void (wanted && ask()), ASKED_AGAIN_MS);
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        if (wanted && problem.passes) setTimeout(() => void (wanted && ask()), ASKED_AGAIN_MS);
      }
    };
    void ask();
    return () => {
      wanted = false;
    };
  }, [loginRequested]);
  return provider;
}

function hostOf(issuer: string): string {
  return URL.canParse(issuer) ? new URL(issuer).host : issuer;
}

/** Forget the token, and end it where a login gave it. */
export async function logOut(): Promise<void> {
  const token = session.leave();
  if (token === null) return;
  try {
    await send("DELETE", "token", { token });
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    session.asks.set("You are logged out here. The API did not answer: your login ends by itself within hours.");
  }
}

/** Lies over the page, so that what was typed there stays. */
export function Login() {
  const asks = useStore(session.asks);
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const provider = useProvider(asks !== null);
  useEffect(() => {
    if (asks !== null && !dialog.current?.open) dialog.current?.showModal();
    if (asks === null) dialog.current?.close();
  }, [asks]);

  // Browsers end a dialog at the second Escape, whatever was done about the first.
  const stay = (): void => {
    if (session.asks.value !== null) dialog.current?.showModal();
  };

  const begin = async (event: Event): Promise<void> => {
    event.preventDefault();
    const token = typed.trim();
    if (!token) return;
    setBusy(true);
    setProblem(null);
    session.token = token;
    try {
      session.begin(token, await get<Token>("token"));
      setTyped("");
      changed();
    } catch (found) {
      if (!(found instanceof Problem)) throw found;
      session.token = null;
      session.asks.set(ASK);
      setProblem(found);
    }
    setBusy(false);
  };

  const leave = async (way: LoginProvider): Promise<void> => {
    setBusy(true);
    try {
      await goToProvider(way);
    } catch (found) {
      if (!(found instanceof Problem)) throw found;
      setProblem(found);
    }
    setBusy(false);
  };

  return (
    <dialog ref={dialog} class="login" aria-labelledby="login-title" onCancel={(event) => event.preventDefault()} onClose={stay}>
      <form onSubmit={(event) => void begin(event)}>
        <h2 id="login-title">Log in to fuga</h2>
        <p>{asks}</p>
        {provider && (
          <p class="buttons">
            <button
              type="button"
              class="primary"
              disabled={busy || provider.authorization_endpoint === null}
              onClick={() => void leave(provider)}
            >
              Log in at {hostOf(provider.issuer)}
            </button>
          </p>
        )}
        {provider?.problem && <p class="hint">{provider.problem}</p>}
        <label>
          Token
          <input
            type="password"
            name="token"
            autocomplete="off"
            spellcheck={false}
            value={typed}
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
        </label>
        <ProblemMessage problem={problem} />
        <p class="hint">
          This tab alone keeps the token, until you close it or log out. <code>fuga env</code> prints yours;{" "}
          <code>fuga login --link</code> a link that logs in without.
        </p>
        <p class="buttons">
          <button type="submit" class="primary" disabled={busy || !typed.trim()}>
            Log in
          </button>
        </p>
      </form>
    </dialog>
  );
}
