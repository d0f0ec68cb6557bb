// ../tool_server.mjs by @modelcontextprotocol/sdk, which most tool servers that are there are made of: over streamable HTTP with sessions, or with
// the argument "stdio" over its standard input and output. Says its URL.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { z } from 'zod';

const said = (text, isError = false) => ({ content: [{ type: 'text', text }], isError });

function toolServer() {
  const server = new McpServer({ name: 'test-tools', version: '1.0.0' });
  let calls = 0;
  server.registerTool('search', { description: 'Search', inputSchema: { query: z.string() } }, async ({ query }) => said(`result page about ${query}`));
  server.registerTool('open', { description: 'Open a page', inputSchema: { id: z.union([z.number(), z.string()]).optional() } },
    async ({ id }) => said(`opened page ${id}`));
  server.registerTool('find', { description: 'Find in a page', inputSchema: { pattern: z.string() } }, async ({ pattern }) => said(`no ${pattern} there`));
  server.registerTool('python', { description: 'Run Python', inputSchema: { code: z.string() } },
    async ({ code }) => (code === 'fail' ? said('python raised an error', true) : said(`python printed 42, call ${++calls} of this session`)));
  return server;
}

if (process.argv[2] === 'stdio') {
  await toolServer().connect(new StdioServerTransport());
} else {
  const sessions = new Map();
  const http = createServer(async (request, response) => {
    if (request.url === '/open') return response.end(String(sessions.size));
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (!transport) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (id) => sessions.set(id, transport),
        onsessionclosed: (id) => sessions.delete(id),
      });
      await toolServer().connect(transport);
    }
    await transport.handleRequest(request, response);
  });
  http.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${http.address().port}/mcp`));
}
