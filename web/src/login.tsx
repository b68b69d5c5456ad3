/** How a tab gets its token. */
import { useEffect, useRef, useState } from "preact/hooks";
import { arrived } from "./api/arrival";
import { get, Problem, send } from "./api/client";
import { changed } from "./api/live";
import { session } from "./api/session";
import type { Token, TokenCreated } from "./api/types";
import { useStore } from "./store";
import { Told } from "./parts/basics";

const ASK = "Paste a token: `fuga env` prints the one that the command uses.";

/** Log in by the link that was opened, or go on with the token that this tab has. */
export async function resume(): Promise<void> {
  const code = arrived.value;
  if (code !== null) return enter(code);
  const token = session.token;
  if (token === null) {
    session.asks.set(ASK);
    return;
  }
  try {
    session.begin(token, await get<Token>("token"));
    changed();
  } catch (problem) {
    if (!(problem instanceof Problem) || !problem.passes) return; // `session` has told it
    setTimeout(() => void resume(), (problem.retryAfterS ?? 3) * 1000);
  }
}

arrived.subscribe(() => arrived.value !== null && void resume());

/** Exchange what was brought for a token. */
async function enter(code: string): Promise<void> {
  try {
    const made = await send<TokenCreated>("POST", "login", { body: { code }, token: "" });
    if (made.secret === null) return;
    session.token = made.secret;
    arrived.set(null);
    session.begin(made.secret, await get<Token>("token"));
    changed();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.passes) {
      setTimeout(() => void resume(), (problem.retryAfterS ?? 3) * 1000);
      return;
    }
    arrived.set(null);
    if (session.token !== null) return resume(); // this tab was logged in before
    session.asks.set(`${problem.message} ${ASK}`);
  }
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
  useEffect(() => {
    if (asks !== null && !dialog.current?.open) dialog.current?.showModal();
    if (asks === null) dialog.current?.close();
  }, [asks]);

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

  return (
    <dialog ref={dialog} class="login" aria-labelledby="login-title" onCancel={(event) => event.preventDefault()}>
      <form onSubmit={(event) => void begin(event)}>
        <h2 id="login-title">Log in to fuga</h2>
        <p>{asks}</p>
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
        <Told problem={problem} />
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
