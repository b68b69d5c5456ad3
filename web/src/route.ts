/** Where the page is: `#/vms/ID?tenant=a`. What is secret is never there. */
import { Store } from "./store";

export interface Route {
  /** Words of the path: `["vms", "ID"]`. */
  path: string[];
  query: URLSearchParams;
}

function read(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

function decoded(word: string): string {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

export const route = new Store<Route>(read());
addEventListener("hashchange", () => {
  route.set(read());
  scrollTo(0, 0);
});

export function to(...words: string[]): string {
  return `#/${words.map(encodeURIComponent).join("/")}`;
}

export function go(...words: string[]): void {
  location.hash = to(...words);
}
