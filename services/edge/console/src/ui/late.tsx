// A component that is loaded when it is first drawn.

import type { ComponentChildren, ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Problem } from "./parts.tsx";

/** Draws nothing until the component is there, and `failed` if it cannot be loaded. */
export function lazyPart<P extends object>(
  load: () => Promise<ComponentType<P>>,
  failed: (error: unknown) => ComponentChildren = (error) => <Problem error={error} />,
): ComponentType<P> {
  let loaded: ComponentType<P> | null = null;
  return function Late(props: P) {
    const [, redraw] = useState(0);
    const [error, setError] = useState<unknown>(null);
    useEffect(() => {
      if (loaded !== null) return;
      let isShown = true;
      load().then(
        (part) => {
          loaded = part;
          if (isShown) redraw((n) => n + 1);
        },
        (reason) => isShown && setError(reason),
      );
      return () => {
        isShown = false;
      };
    }, []);
    if (error !== null) return <>{failed(error)}</>;
    if (loaded === null) return null;
    const Part = loaded;
    return <Part {...props} />;
  };
}
