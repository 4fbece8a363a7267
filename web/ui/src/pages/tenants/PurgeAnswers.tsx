import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, base, result } from "../../api/client";
import { overviewQuery } from "../../api/queries";
import { adminCurl } from "../../lib/curl";
import { plural } from "../../lib/format";
import { Confirm } from "../../ui/Dialog";
import { Problem } from "../../ui/Panel";
import { ChangeButton, Curl } from "../../ui/parts";
import { toast } from "../../ui/Toasts";

/** PurgeAnswers removes the kept answers of a tenant. Without a response cache it is not shown. */
export function PurgeAnswers({ tenant }: { tenant: string }) {
  const cache = useQuery(overviewQuery).data?.response_cache;
  const [asking, setAsking] = useState(false);
  const purge = useMutation({
    mutationFn: () => result(api.POST("/admin/tenants/{name}/purge-answers", { params: { path: { name: tenant } } })),
    onSuccess: ({ removed, shared }) => {
      setAsking(false);
      toast(`The kept answers of ${tenant}${shared ? ` and its group ${shared}` : ""} were removed: ${plural(removed, "answer")} in memory${cache?.store === "redis" ? ", and those in Redis" : ""}.`);
    },
  });
  if (!cache) return null;
  return (
    <>
      <ChangeButton onClick={() => setAsking(true)}>Remove kept answers</ChangeButton>
      {asking && (
        <Confirm
          title={`Remove the kept answers of ${tenant}?`}
          action="Remove kept answers"
          danger
          pending={purge.isPending}
          onConfirm={() => purge.mutate()}
          onClose={() => setAsking(false)}
        >
          <p>
            Its next requests go to workers. If it shares answers in a group, those of the group are removed too. Answers in
            the memory of other gateways stay.
          </p>
          {purge.error && <Problem error={purge.error} />}
          <Curl text={adminCurl(base, "POST", `admin/tenants/${tenant}/purge-answers`)} />
        </Confirm>
      )}
    </>
  );
}
