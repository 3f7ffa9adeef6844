import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

/** Reads lines of "reader TAB writer"; prints for each the verdict, or the problem of a schema, TAB the reader's text. */
public class AvroOracle {
  public static void main(String[] arguments) throws Exception {
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var out = new StringBuilder();
    for (String line; (line = in.readLine()) != null; ) {
      String[] pair = line.split("\t");
      String verdict;
      String text = "";
      try {
        Schema reader = new Schema.Parser().parse(pair[0]);
        Schema writer = new Schema.Parser().parse(pair[1]);
        text = reader.toString();
        var result = SchemaCompatibility.checkReaderWriterCompatibility(reader, writer);
        verdict = result.getType().toString();
      } catch (org.apache.avro.AvroRuntimeException problem) {
        verdict = "INVALID " + problem.getMessage().replaceAll("\\s+", " ");
      }
      out.append(verdict).append('\t').append(text).append('\n');
    }
    System.out.write(out.toString().getBytes(StandardCharsets.UTF_8));
    System.out.flush();
  }
}
