import { useEffect, useId, useState, type ReactNode } from "react";
import { ApiError } from "../api/client";
import { useLiveness } from "../live/live";

/** A loading panel shows nothing at first, so that a fast answer causes no flash. */
const skeletonDelay = 150;

/** Skeleton is the placeholder of rows that are being loaded. */
export function Skeleton({ rows = 4 }: { rows?: number }) {
  const [shown, show] = useState(false);
  useEffect(() => {
    const t = setTimeout(() => show(true), skeletonDelay);
    return () => clearTimeout(t);
  }, []);
  return (
    <div className="skeleton" role="status" aria-label="Loading">
      {shown && Array.from({ length: rows }, (_, i) => <div key={i} />)}
    </div>
  );
}

/** Problem shows an error with its way out. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const known = error instanceof ApiError ? error : undefined;
  return (
    <div className="problem" role="alert">
      <strong>{titleOf(known)}</strong>
      <p>{known?.detail || (error instanceof Error ? error.message : String(error))}</p>
      {known && known.fields.length > 0 && (
        <ul>
          {known.fields.map((f) => (
            <li key={f.location + f.message}>
              {f.location && <code>{f.location}</code>} {f.message}
            </li>
          ))}
        </ul>
      )}
      {known?.requestId && <p className="muted">Request {known.requestId}</p>}
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

// The title of 422 is a word of HTTP.
function titleOf(error: ApiError | undefined): string {
  if (!error) return "Error";
  return error.status === 422 ? "Not accepted" : error.title;
}

/** Empty says that there is nothing yet, and what to do next. */
export function Empty({ children }: { children: ReactNode }) {
  return <div className="empty">{children}</div>;
}

/** PanelQuery is the part of a query's result that a panel shows. */
export interface PanelQuery<T> {
  data: T | undefined;
  error: Error | null;
  isPending: boolean;
  refetch: () => unknown;
}

interface PanelProps<T> {
  title?: ReactNode;
  actions?: ReactNode;
  query: PanelQuery<T>;
  /** Returns what to show instead of the children if there are no items, else a falsy value. */
  empty?: (data: T) => ReactNode;
  rows?: number;
  /** false: the data does not change, so it is never stale. */
  live?: boolean;
  children: (data: T) => ReactNode;
}

/** Panel shows the data of a query, or why there is none. It keeps the last data after an error. */
export function Panel<T>({ title, actions, query, empty, rows, live, children }: PanelProps<T>) {
  const id = useId();
  const connection = useLiveness();
  const { data, error, isPending } = query;
  const stale = data !== undefined && (error !== null || (live !== false && connection.state === "stale"));
  return (
    <section className="panel" aria-labelledby={title ? id : undefined}>
      {(title || actions) && (
        <header>
          {title && <h2 id={id}>{title}</h2>}
          {stale && (
            <span className="chip warn" role="status">
              {error ? "stale" : connection.text}
            </span>
          )}
          {actions && <div className="actions">{actions}</div>}
        </header>
      )}
      {error !== null && <Failure error={error} retry={() => void query.refetch()} />}
      {isPending && error === null && <Skeleton rows={rows} />}
      {data !== undefined && <div className={stale ? "dimmed" : undefined}>{empty?.(data) || children(data)}</div>}
    </section>
  );
}

function Failure({ error, retry }: { error: unknown; retry: () => void }) {
  if (error instanceof ApiError && error.status === 403) {
    return (
      <Empty>
        <strong>Not permitted.</strong> {error.detail}
      </Empty>
    );
  }
  return <Problem error={error} retry={retry} />;
}
