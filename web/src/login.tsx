/** How a tab gets its token. */
import { useEffect, useRef, useState } from "preact/hooks";
import { get, Problem } from "./api/client";
import { changed } from "./api/live";
import { session } from "./api/session";
import type { Token } from "./api/types";
import { useStore } from "./store";
import { Told } from "./parts/basics";

const ASK = "Paste a token: `fuga env` prints the one that the command uses.";

/** Go on with the token that this tab has. */
export async function resume(): Promise<void> {
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
          This tab alone keeps the token, until you close it or log out. <code>fuga env</code> prints yours.
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
