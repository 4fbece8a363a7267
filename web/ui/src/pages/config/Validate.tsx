import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { base } from "../../api/client";
import { useMayChange } from "../../api/queries";
import { adminCurl } from "../../lib/curl";
import { Problem } from "../../ui/Panel";
import { Badge, Curl, Field } from "../../ui/parts";
import { Lines } from "./FileText";
import { Problems } from "./Problems";
import { validate } from "./queries";

/** Validate checks a pasted configuration, or the file on disk, and changes nothing. */
export function Validate() {
  const may = useMayChange();
  const [text, setText] = useState("");
  const [line, setLine] = useState(0);
  const check = useMutation({ mutationFn: validate, onSuccess: () => setLine(0) });
  const problems = check.data?.problems ?? [];
  const checked = check.variables ?? "";
  return (
    <section className="panel" aria-label="Validate">
      <form
        className="body stack padded"
        onSubmit={(e) => {
          e.preventDefault();
          check.mutate(text);
        }}
        onDragOver={(e) => e.preventDefault()}
        onDrop={(e) => {
          e.preventDefault();
          const file = e.dataTransfer.files[0];
          if (file && may) void file.text().then(setText);
        }}
      >
        <Field
          label="Configuration"
          hint={
            may
              ? "Paste YAML or drop a file. If the field is empty, the file on disk is checked. Nothing is applied."
              : "A key with the role viewer can check only the file on disk: a pasted text could read secrets of the machine."
          }
        >
          <textarea rows={10} spellCheck={false} disabled={!may} value={text} onChange={(e) => setText(e.target.value)} />
        </Field>
        <div className="row">
          <button type="submit" className="primary" disabled={check.isPending}>
            {text ? "Validate the text" : "Validate the file on disk"}
          </button>
          <span role="status">
            {check.data && (
              <Badge tone={check.data.valid ? "ok" : "err"}>
                {check.data.valid ? "valid" : `${problems.filter((p) => p.severity === "error").length} errors`}
              </Badge>
            )}
          </span>
        </div>
        {check.error && <Problem error={check.error} />}
        <Problems problems={problems} onLine={checked ? setLine : undefined} />
        {checked && problems.length > 0 && (
          <Lines text={checked} marked={line ? [line] : problems.map((p) => p.line).filter((n) => n > 0)} />
        )}
        <Curl text={adminCurl(base, "POST", "admin/config/validate", text ? { text } : {})} />
      </form>
    </section>
  );
}
