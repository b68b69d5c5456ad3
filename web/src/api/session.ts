/** Who uses the page. The token lives in this tab alone: `sessionStorage` ends with it. */
import { Store } from "../store";
import type { Token } from "./types";

const KEPT_AS = "fuga.token";

export class Session {
  /** Who the token stands for; null: nobody yet. */
  readonly caller = new Store<Token | null>(null);
  /** Why a token is asked for; null: none is. */
  readonly asks = new Store<string | null>(null);
  token: string | null = sessionStorage.getItem(KEPT_AS);

  begin(token: string, caller: Token): void {
    this.token = token;
    sessionStorage.setItem(KEPT_AS, token);
    this.caller.set(caller);
    this.asks.set(null);
  }

  /** Forget the token, and return it if it ends with that: one that was pasted is not ours. */
  leave(): string | null {
    const ends = this.caller.value?.login ? this.token : null;
    this.end("You are logged out.");
    this.caller.set(null);
    return ends;
  }

  /** The token is no longer good. What was typed stays on the page behind the question. */
  end(why = "Your token is no longer valid: it has expired or was revoked."): void {
    this.token = null;
    sessionStorage.removeItem(KEPT_AS);
    this.asks.set(why);
  }

  get isOperator(): boolean {
    return this.caller.value?.role === "operator";
  }

  get readOnly(): boolean {
    return this.caller.value?.read_only ?? true;
  }
}

export const session = new Session();
