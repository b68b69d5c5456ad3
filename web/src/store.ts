/** A value that parts of the page share, and a hook that draws them again when it changes. */
import { useEffect, useState } from "preact/hooks";

export class Store<T> {
  #value: T;
  readonly #heard = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const tell of [...this.#heard]) tell();
  }

  subscribe(tell: () => void): () => void {
    this.#heard.add(tell);
    return () => this.#heard.delete(tell);
  }
}

export function useStore<T>(store: Store<T>): T {
  const [value, set] = useState(store.value);
  useEffect(() => {
    set(() => store.value); // it may have changed since this was drawn
    return store.subscribe(() => set(() => store.value));
  }, [store]);
  return value;
}
