// Images of a message that is being written: chosen, pasted or dropped. They travel in the message itself.

import { useState } from "preact/hooks";
import { formatBytes } from "../core/format.ts";
import { Icon } from "./icons.tsx";

export interface Attached {
  name: string;
  /** A `data:` address. */
  url: string;
}

/** Images of one message, as text: the edge takes messages up to 1 MiB. */
const ALL_MAX = 900 << 10;
/** A larger image is drawn again, smaller. */
const IMAGE_MAX = 300 << 10;
/** Longest side that is left, in pixels: more than models look at. */
const SIDE_MAX = 1568;
const JPEG_QUALITY = 0.85;
const KINDS = /^image\/(png|jpeg|gif|webp)$/;

export interface Images {
  list: Attached[];
  error: string;
  add(files: Iterable<File>): void;
  remove(image: Attached): void;
  clear(): void;
  restore(list: Attached[]): void;
  /** Takes the images of a paste or a drop; whether there were any. */
  take(data: DataTransfer | null): boolean;
}

export function useImages(): Images {
  const [list, setList] = useState<Attached[]>([]);
  const [error, setError] = useState("");
  const add = async (files: File[]) => {
    setError("");
    try {
      const found: Attached[] = [];
      for (const file of files) found.push({ name: file.name, url: await readImage(file) });
      setList((known) => {
        const all = [...known, ...found];
        const size = all.reduce((sum, image) => sum + image.url.length, 0);
        if (size <= ALL_MAX) return all;
        setError(`These images have ${formatBytes(size)}; a message has room for ${formatBytes(ALL_MAX)}.`);
        return known;
      });
    } catch (failed) {
      setError(failed instanceof Error ? failed.message : String(failed));
    }
  };
  const addAll = (files: Iterable<File>) => void add([...files]);
  return {
    list,
    error,
    add: addAll,
    remove: (image) => setList((known) => known.filter((other) => other !== image)),
    clear: () => setList([]),
    restore: setList,
    take(data) {
      // Text that an office program copied comes with a picture of it.
      if (data?.types.includes("text/plain")) return false;
      const files = [...(data?.files ?? [])].filter((file) => file.type.startsWith("image/"));
      if (files.length > 0) addAll(files);
      return files.length > 0;
    },
  };
}

async function readImage(file: File): Promise<string> {
  if (!KINDS.test(file.type)) throw new Error(`${file.name} is not a PNG, JPEG, GIF or WebP image.`);
  const url = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
  if (url.length <= IMAGE_MAX) return url;
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name} is not an image that this browser can read.`);
  });
  const scale = Math.min(1, SIDE_MAX / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  canvas.getContext("2d")?.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas.toDataURL("image/jpeg", JPEG_QUALITY);
}

/** The content of a message: its text, or its text and images as parts. */
export function messageContent(text: string, images: Attached[]): unknown {
  if (images.length === 0) return text;
  return [
    ...(text === "" ? [] : [{ type: "text", text }]),
    ...images.map(({ url }) => ({ type: "image_url", image_url: { url } })),
  ];
}

export function Attachments({ images }: { images: Images }) {
  return (
    <>
      {images.list.length > 0 && (
        <ul class="attachments" aria-label="Images">
          {images.list.map((image) => (
            <li>
              <img src={image.url} alt={image.name} />
              <button type="button" aria-label={`Remove ${image.name}`} onClick={() => images.remove(image)}>
                <Icon name="close" />
              </button>
            </li>
          ))}
        </ul>
      )}
      {images.error !== "" && (
        <p class="inline-error" role="alert">
          {images.error}
        </p>
      )}
    </>
  );
}

/** A button that opens the files of the machine. */
export function AttachButton({ images }: { images: Images }) {
  return (
    <label class="button attach" title="Add images; pasting and dropping them works too">
      <Icon name="image" />
      <span>Image</span>
      <input
        type="file"
        class="sr-only"
        accept="image/png,image/jpeg,image/gif,image/webp"
        multiple
        aria-label="Add images"
        onChange={(event) => {
          images.add(event.currentTarget.files ?? []);
          event.currentTarget.value = "";
        }}
      />
    </label>
  );
}
