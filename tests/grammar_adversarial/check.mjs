// Whether each document is valid by ajv for its schema.
//
// usage: node check.mjs SCHEMAS DOCUMENTS
import { readFileSync } from "node:fs";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

const [schemasPath, documentsPath] = process.argv.slice(2);
const schemas = JSON.parse(readFileSync(schemasPath, "utf8"));
// multipleOf 0.01 divides doubles: nine digits are what a quotient can be asked for.
const ajv = new Ajv2020({ strict: false, allErrors: false, multipleOfPrecision: 9, logger: false });
addFormats.default(ajv);
// ajv-formats knows e-mail addresses of the usual kind; RFC 5321 also has quoted names and literals.
ajv.addFormat("email", (text) => {
  const ascii = /^("(?:[ !#-\[\]-~]|\\[ -~])+"|[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*)@(.*)$/;
  const parts = ascii.exec(text);
  if (!parts) return false;
  const literal = /^\[(IPv6:)?(.*)\]$/.exec(parts[2]);
  if (literal) {
    const address = ajv.formats[literal[1] ? "ipv6" : "ipv4"];
    return (address.validate ?? address).test(literal[2]);
  }
  return /^[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$/.test(parts[2]);
});

const validators = schemas.map((schema) => ajv.compile(schema));
let checked = 0;
let wrong = 0;
for (const line of readFileSync(documentsPath, "utf8").split("\n")) {
  if (line === "") continue;
  const { schema, text } = JSON.parse(line);
  checked += 1;
  let complaint = null;
  try {
    const value = JSON.parse(text);
    if (!validators[schema](value)) complaint = ajv.errorsText(validators[schema].errors);
  } catch (error) {
    complaint = String(error);
  }
  if (complaint !== null) {
    wrong += 1;
    if (wrong <= 20) {
      console.log(`schema ${schema} ${JSON.stringify(schemas[schema])}\n  ${text.slice(0, 2000)}\n  ${complaint}`);
    }
  }
}
console.log(`${checked} documents, ${wrong} not valid by ajv ${JSON.parse(readFileSync("node_modules/ajv/package.json")).version}`);
process.exit(wrong > 0 || checked === 0 ? 1 : 0);
