import { useMutation } from "@tanstack/react-query";
import { api, result } from "../../api/client";
import { count } from "../../lib/format";
import { Problem } from "../../ui/Panel";
import { Badge } from "../../ui/parts";

/** Verification checks on request that no entry of the log was changed, inserted or removed. */
export function Verification() {
  const check = useMutation({ mutationFn: () => result(api.POST("/admin/audit/verify")) });
  return (
    <div className="row">
      <button type="button" onClick={() => check.mutate()} disabled={check.isPending}>
        {check.isPending ? "Verifying…" : "Verify the log"}
      </button>
      <span role="status">
        {check.data &&
          (check.data.valid ? (
            <Badge tone="ok">{count(check.data.entries)} entries, none changed, inserted or removed</Badge>
          ) : (
            <Badge tone="err">the log was changed at entry {check.data.broken_at}</Badge>
          ))}
        {!check.data && <span className="muted">Each entry contains the hash of the entry before it.</span>}
      </span>
      {check.error && <Problem error={check.error} />}
    </div>
  );
}
