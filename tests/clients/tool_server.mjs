// A tool server by the Model Context Protocol's own packages, over streamable HTTP with sessions, or with the argument "stdio"
// over its standard input and output: what gpt-oss calls as
// browser and python, with answers that are known. Says its URL; a notebook's variable lives as long as its session.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { localhostHostValidation, NodeStreamableHTTPServerTransport } from '@modelcontextprotocol/node';
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const said = (text, isError = false) => ({ content: [{ type: 'text', text }], isError });

function toolServer() {
  const server = new McpServer({ name: 'test-tools', version: '1.0.0' });
  let calls = 0;
  server.registerTool('search', { description: 'Search', inputSchema: z.object({ query: z.string() }) },
    async ({ query }) => said(`result page about ${query}`));
  server.registerTool('open', { description: 'Open a page', inputSchema: z.object({ id: z.union([z.number(), z.string()]).optional() }) },
    async ({ id }) => said(`opened page ${id}`));
  server.registerTool('find', { description: 'Find in a page', inputSchema: z.object({ pattern: z.string() }) },
    async ({ pattern }) => said(`no ${pattern} there`));
  server.registerTool('python', { description: 'Run Python', inputSchema: z.object({ code: z.string() }) },
    async ({ code }) => (code === 'fail' ? said('python raised an error', true) : said(`python printed 42, call ${++calls} of this session`)));
  return server;
}

if (process.argv[2] === 'stdio') {
  await toolServer().connect(new StdioServerTransport());
} else {
  serveHttp();
}

function serveHttp() {
  const sessions = new Map();
  const validateHost = localhostHostValidation();
  const http = createServer(async (request, response) => {
    if (!validateHost(request, response)) return;
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (!transport) {
      transport = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (id) => sessions.set(id, transport),
        onsessionclosed: (id) => sessions.delete(id),
      });
      await toolServer().connect(transport);
    }
    if (request.url === '/open') {
      response.end(String(sessions.size));
      return;
    }
    await transport.handleRequest(request, response);
  });
  http.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${http.address().port}/mcp`));
}
