import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { base } from "../api/client";
import { Dialog } from "../ui/Dialog";
import type { PageLink } from "./Shell";

/** The second key of "g t" must follow within this time. */
const chordTime = 1500;

function typing(e: KeyboardEvent): boolean {
  const at = e.target as HTMLElement | null;
  return at !== null && (at.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName));
}

/** Shortcuts handles the keys of the whole page: / focuses the filter, g and a letter opens a page. Its button shows them. */
export function Shortcuts({ pages }: { pages: readonly PageLink[] }) {
  const navigate = useNavigate();
  const [help, setHelp] = useState(false);
  useEffect(() => {
    let chord = 0;
    const press = (e: KeyboardEvent) => {
      if (typing(e) || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
      const page = Date.now() - chord < chordTime ? pages.find((p) => p.key === e.key) : undefined;
      chord = 0;
      if (page) {
        void navigate({ to: page.to });
      } else if (e.key === "g") {
        chord = Date.now();
      } else if (e.key === "?") {
        setHelp(true);
      } else if (e.key === "/") {
        const filter = document.querySelector<HTMLInputElement>("main input[type=search]");
        if (!filter) return;
        filter.focus();
      } else {
        return;
      }
      e.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [navigate, pages]);
  return (
    <>
      <button type="button" aria-label="Help" title="Help and keyboard shortcuts" onClick={() => setHelp(true)}>
        ?
      </button>
      {help && (
        <Dialog title="Keyboard shortcuts" onClose={() => setHelp(false)}>
          <dl className="keys">
            <dt>
              <kbd>/</kbd>
            </dt>
            <dd>Focus the filter</dd>
            {pages.map((p) => (
              <div key={p.key}>
                <dt>
                  <kbd>g</kbd> <kbd>{p.key}</kbd>
                </dt>
                <dd>{p.label}</dd>
              </div>
            ))}
            <dt>
              <kbd>?</kbd>
            </dt>
            <dd>Show this list</dd>
          </dl>
          <p className="row small">
            <a href={`${base}admin/openapi.json`}>API description</a>
            <a href={`${base}THIRD_PARTY_LICENSES.txt`}>Licences of the packages</a>
          </p>
        </Dialog>
      )}
    </>
  );
}
