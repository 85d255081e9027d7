# frozen_string_literal: true

# HTTP answers, whole and in pieces.
class ResponseTest < RingwellTest
  OK = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
  CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" \
            "1\r\n{\r\n1;a=b\r\n}\r\n0\r\nx: y\r\n\r\n"

  {
    "a length" => [OK, true],
    "chunks" => [CHUNKED, true],
    "an interim answer before it" => ["HTTP/1.1 103 Early\r\nlink: a\r\n\r\n#{OK}", true],
    "connection close" => [OK.sub("\r\n", "\r\nConnection: close\r\n"), false],
    "HTTP/1.0" => [OK.sub("1.1", "1.0"), false],
    "HTTP/1.0 with keep-alive" => [
      OK.sub("1.1", "1.0").sub("\r\n", "\r\nconnection: keep-alive\r\n"), true
    ],
    "no length" => ["HTTP/1.1 200\r\n\r\n{}", false],
    "bytes after it" => ["#{OK}!", false]
  }.each do |name, (bytes, reusable)|
    [1, 7, 100_000].each do |piece|
      it "an answer with #{name} is read in pieces of #{piece}" do
        response = read(bytes, piece)
        assert_equal [200, "{}"], [response.status, response.body]
        assert_equal reusable, response.reusable? unless bytes.end_with?("!") && piece < 100_000
      end
    end
  end

  [15_000, 16_384, 64_000, 65_536, 1_000_000].each do |size|
    it "a body of #{size} bytes arrives whole" do
      body = "ä" * (size / 2)
      response = read("HTTP/1.1 200 OK\r\ncontent-length: #{size}\r\n\r\n#{body}", 16_384)
      assert_equal [body, Encoding::UTF_8], [response.body, response.body.encoding]
    end
  end

  {
    "garbage" => "\x16\x03\x01\r\n\r\n",
    "HTTP/2" => "HTTP/2 200\r\n\r\n",
    "no status" => "\r\n\r\n",
    "a header without a colon" => "HTTP/1.1 200 OK\r\noh\r\n\r\n",
    "an invalid length" => "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    "a length above the limit" => "HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n",
    "a chunk without size" => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
    "a chunk above the limit" =>
      "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7fffffff\r\n",
    "an endless head" => "HTTP/1.1 200 OK\r\na: #{"b" * 70_000}",
    "an endless line" => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n#{"1" * 70_000}",
    "an endless body" => "HTTP/1.1 200 OK\r\n\r\n#{"b" * (6 * 1024 * 1024)}"
  }.each do |name, bytes|
    it "#{name} is refused" do
      assert_raises(Ringwell::ProtocolError) { read(bytes, 1 << 20) }
    end
  end

  it "chunks that exceed the limit together are refused" do
    chunk = "#{(3 << 20).to_s(16)}\r\n#{"b" * (3 << 20)}\r\n"
    bytes = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n#{chunk * 2}"
    assert_raises(Ringwell::ProtocolError) { read(bytes, 1 << 20) }
  end

  it "a truncated answer is a lost connection, wherever it ends" do
    [OK, CHUNKED].each do |bytes|
      (0...bytes.size).each do |length|
        assert_raises(Ringwell::ConnectionLost, bytes[0, length]) { read(bytes[0, length], 9) }
      end
    end
  end

  private

  def read(bytes, piece)
    at = -piece
    Ringwell::Response.new { |buffer| buffer << bytes.byteslice(at += piece, piece).to_s.b }
  end
end
