import createClient, { type Middleware } from "openapi-fetch";
import type { ErrorModel, paths } from "./schema";

/** Address of the folder that the page was loaded from; a path prefix of a proxy is part of it. */
export const base = new URL(".", document.baseURI).href;

/** ApiError is an answer of the admin API that is no success, or a request without an answer. */
export class ApiError extends Error {
  constructor(
    /** 0: the gateway did not answer. */
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly fields: { location: string; message: string }[],
    readonly requestId: string,
  ) {
    super(detail || title);
  }

  /** field returns the message about one field of the body, such as limits.rpm. */
  field(name: string): string | undefined {
    return this.fields.find(({ location: at }) => at === `body.${name}` || at === name || at.startsWith(`body.${name}[`))?.message;
  }
}

// A session expires after 30 minutes without input. Refetches of an abandoned tab must not
// prolong it, so requests without recent input carry this header.
const inactiveAfter = 60_000;
let lastInput = Date.now();
for (const kind of ["pointerdown", "keydown", "wheel"]) {
  addEventListener(kind, () => (lastInput = Date.now()), { passive: true, capture: true });
}

const signedOut = new Set<() => void>();

/** onSignedOut calls f whenever the API rejects the session. It returns a function that ends this. */
export function onSignedOut(f: () => void): () => void {
  signedOut.add(f);
  return () => signedOut.delete(f);
}

const session: Middleware = {
  onRequest({ request }) {
    if (Date.now() - lastInput > inactiveAfter) request.headers.set("X-Tierway-Background", "1");
    return request;
  },
  onResponse({ response, schemaPath }) {
    if (response.status === 401 && schemaPath !== "/admin/bootstrap" && !schemaPath.endsWith("/session")) {
      for (const f of signedOut) f();
    }
  },
};

/** api has one typed method per operation of the admin API. */
export const api = createClient<paths>({
  baseUrl: base.replace(/\/$/, ""),
  credentials: "same-origin",
  querySerializer: { array: { style: "form", explode: false } }, // the gateway rejects repeated parameters
});
api.use(session);

/** result returns the body of an answer, or throws an ApiError. */
export async function result<T>(
  answer: Promise<{ data?: T; error?: unknown; response: Response }>,
): Promise<NonNullable<T>> {
  let got: Awaited<typeof answer>;
  try {
    got = await answer;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new ApiError(0, "No answer", `The gateway did not answer (${why}). Check that it runs and that the network reaches it, then try again.`, [], "");
  }
  const { data, error, response } = got;
  if (response.ok) return (data ?? {}) as NonNullable<T>;
  const problem = (typeof error === "object" && error !== null ? error : {}) as Partial<ErrorModel>;
  throw new ApiError(
    response.status,
    problem.title ?? `Status ${response.status}`,
    problem.detail ?? "",
    (problem.errors ?? []).map((e) => ({ location: e.location ?? "", message: e.message ?? "" })),
    response.headers.get("X-Request-Id") ?? "",
  );
}
