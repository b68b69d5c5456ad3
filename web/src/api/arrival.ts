/** What an address brought that logs in. Read first of all, and taken out of address and history at once. */
import { Store } from "../store";

/** The code of a one-time link, until it is exchanged. */
export const arrived = new Store<string | null>(null);

const LINK = /^#login=([!-~]{1,512})$/;

function take(): void {
  const code = LINK.exec(location.hash)?.[1];
  if (code === undefined) return;
  // This entry of the history is now the page's first view: going back does not bring the code again.
  history.replaceState(null, "", `${location.pathname}#/`);
  arrived.set(code);
}

take();
// A link that is opened in a tab with the page loads nothing anew. Who hears of it next reads what is left.
addEventListener("hashchange", take);
