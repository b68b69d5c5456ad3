/** Logging in at the site's provider of identities: OpenID Connect, authorisation code with PKCE. */
import { type Pending, remember } from "./arrival";
import { Problem } from "./client";
import type { LoginProvider } from "./types";

/** Leave for the provider; it brings the browser back, and `arrival` takes its answer. */
export async function goToProvider(way: LoginProvider): Promise<void> {
  const pending: Pending = {
    state: random(16),
    verifier: random(32),
    redirect_uri: location.origin + location.pathname,
    back: location.hash,
  };
  const address = way.authorization_endpoint ?? "";
  const there = URL.canParse(address) ? new URL(address) : null;
  if (there === null || !["https:", "http:"].includes(there.protocol)) {
    throw new Problem(0, null, null, "The provider names no address to log in at.");
  }
  const parameters = {
    response_type: "code",
    response_mode: way.response_mode,
    client_id: way.client_id,
    redirect_uri: pending.redirect_uri,
    scope: way.scope,
    state: pending.state,
    nonce: await digest(`nonce.${pending.verifier}`),
    code_challenge: await digest(pending.verifier),
    code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(parameters)) {
    if (name !== "response_mode" || value !== "query") there.searchParams.set(name, value);
  }
  remember(pending);
  location.assign(there);
}

async function digest(text: string): Promise<string> {
  if (!("subtle" in crypto)) {
    throw new Problem(0, null, null, "Logging in at the provider needs this page by https.");
  }
  return written(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))));
}

function random(bytes: number): string {
  return written(crypto.getRandomValues(new Uint8Array(bytes)));
}

function written(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}
