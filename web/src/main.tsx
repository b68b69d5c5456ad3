import "./api/arrival"; // before whatever reads the address
import { render } from "preact";
import { App } from "./app";
import { followChanges } from "./api/live";
import { resume } from "./login";
import "./styles.css";

const root = document.getElementById("app");
if (root !== null) render(<App />, root);
void resume();
followChanges();
