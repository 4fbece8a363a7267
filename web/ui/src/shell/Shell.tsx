import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useLocation, useRouter } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { onSignedOut } from "../api/client";
import { overviewQuery, queries, sessionQuery } from "../api/queries";
import { live, useLiveness } from "../live/live";
import { Toasts } from "../ui/Toasts";
import { Skeleton } from "../ui/Panel";
import { Account } from "./Account";
import { Shortcuts } from "./Shortcuts";

const pages = [
  { to: "/", label: "Overview", key: "o" },
  { to: "/tenants", label: "Tenants", key: "t" },
  { to: "/workers", label: "Workers", key: "w" },
  { to: "/rules", label: "Tiers and rules", key: "r" },
  { to: "/decisions", label: "Decisions", key: "d" },
  { to: "/metrics", label: "Metrics", key: "m" },
  { to: "/config", label: "Config", key: "c" },
  { to: "/audit", label: "Audit", key: "a" },
  { to: "/clients", label: "Client setup", key: "s" },
] as const;

export type PageLink = (typeof pages)[number];

/** Root is around every page, the login page included. */
export function Root() {
  return (
    <>
      <Outlet />
      <Toasts />
    </>
  );
}

/** Shell is the frame of all pages that need a session. */
export function Shell() {
  const session = useQuery(sessionQuery);
  useEffect(() => onSignedOut(() => void queries.invalidateQueries({ queryKey: ["session"] })), []);
  const name = session.data?.name;
  useEffect(() => {
    if (name) live.start();
  }, [name]);
  if (session.isPending) return <Skeleton />;
  if (session.data === null) return <ToLogin />;
  return (
    <div className="shell">
      <a className="skip" href="#main" onClick={focusMain}>
        Skip to the content
      </a>
      <TopBar />
      <Navigation />
      <Main />
    </div>
  );
}

// Opens the login page, which returns to the present page.
function ToLogin() {
  const router = useRouter();
  const [here] = useState(() => router.state.location.href);
  useEffect(() => {
    void router.navigate({ to: "/login", search: here === "/" ? {} : { to: here }, replace: true });
  }, [router, here]);
  return null;
}

// The address after # is the page, so a link to #main would leave it.
function focusMain(e: React.MouseEvent) {
  e.preventDefault();
  document.getElementById("main")?.focus();
}

function TopBar() {
  const { data } = useQuery(overviewQuery);
  const connection = useLiveness();
  return (
    <header className="top">
      <Link to="/" className="brand">
        <img src="./favicon.svg" alt="" width="20" height="20" /> Tierway <small>{data?.version}</small>
      </Link>
      <span className={`pill ${connection.state}`} role="status">
        {connection.text}
      </span>
      {data?.draining && <span className="chip warn">shutting down</span>}
      {data !== undefined && data.overrides > 0 && (
        <Link to="/config" search={{ tab: "overrides" }} className="chip info">
          {data.overrides} live {data.overrides === 1 ? "override" : "overrides"}
        </Link>
      )}
      <span className="grow" />
      <Shortcuts pages={pages} />
      <Account />
    </header>
  );
}

/** Navigation links to all pages. In a narrow window, a button opens the list. */
function Navigation() {
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const page = useLocation({ select: (l) => l.pathname });
  useEffect(() => setOpen(false), [page]);
  const close = (e: React.KeyboardEvent) => {
    if (e.key !== "Escape" || !open) return;
    setOpen(false);
    button.current?.focus();
  };
  return (
    <nav aria-label="Pages" onKeyDown={close}>
      <button ref={button} type="button" className="menu" aria-expanded={open} aria-controls="pages" onClick={() => setOpen(!open)}>
        <span aria-hidden="true">☰</span> Menu
      </button>
      <div id="pages" className={open ? "pages open" : "pages"} onClick={() => setOpen(false)}>
        {pages.map((p) => (
          <Link key={p.to} to={p.to} activeOptions={{ exact: p.to === "/", includeSearch: false }}>
            {p.label}
          </Link>
        ))}
      </div>
    </nav>
  );
}

function Main() {
  return (
    <main id="main" tabIndex={-1}>
      <Outlet />
    </main>
  );
}

// The first page keeps the focus where the browser puts it.
let opened = false;

/** PageTitle is the heading of a page. After a change of the page it receives the focus, as after a page load. */
export function PageTitle({ children, note }: { children: string; note?: React.ReactNode }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${children} · Tierway`;
    if (opened) heading.current?.focus({ preventScroll: true });
    opened = true;
  }, [children]);
  return (
    <div className="title">
      <h1 ref={heading} tabIndex={-1}>
        {children}
      </h1>
      {note && <p className="muted">{note}</p>}
    </div>
  );
}

/** NotFound is shown for an address without a page. */
export function NotFound() {
  const [path] = useState(() => location.hash);
  return (
    <main className="login">
      <h1>No such page</h1>
      <p>
        There is no page <code>{path}</code>. <Link to="/">Go to the overview</Link>
      </p>
    </main>
  );
}
